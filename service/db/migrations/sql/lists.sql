-- What lists need.

-- The best trial of a study, for each row of a list: without this, through every trial of every study.
CREATE INDEX ix_trial_best ON trial (study_id, value) WHERE state = 'completed';
