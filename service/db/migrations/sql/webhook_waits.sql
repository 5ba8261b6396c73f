-- Which time a study reached the state that a message tells of: by the number of the event.
ALTER TABLE webhook_delivery ADD COLUMN seq bigint;

-- Until now it was told of each state once: of the first time. Of events that are forgotten nothing is told any more.
UPDATE webhook_delivery SET seq = coalesce(
    (
        SELECT min(event.seq) FROM event
        WHERE event.study_id = webhook_delivery.study_id
            AND event.kind = 'state'
            AND event.data ->> 'state' = webhook_delivery.event
    ),
    0
);

ALTER TABLE webhook_delivery ALTER COLUMN seq SET NOT NULL;
ALTER TABLE webhook_delivery DROP CONSTRAINT uq_webhook_delivery_study_id;
ALTER TABLE webhook_delivery
    ADD CONSTRAINT uq_webhook_delivery_study_id UNIQUE (study_id, event, target, seq);
