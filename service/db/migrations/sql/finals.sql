-- What the finals of a search add, and what older studies need in order to stay readable.

-- A constant default is kept in the catalogue: no row is rewritten and none is checked, so NOT NULL
-- takes one step here, and a service that does not know the column yet may still insert.
ALTER TABLE trial
    ADD COLUMN repeats JSONB DEFAULT '[]'::jsonb NOT NULL,
    ADD COLUMN source TEXT;
ALTER TABLE study ADD COLUMN promotion JSONB;

-- A search that is under way may process as much as one private run: search.budget as it is by default.
UPDATE run
   SET assignment = run.assignment
       || jsonb_build_object('max_examples', study.plan #> '{cost,private_run_examples}')
  FROM study
 WHERE study.id = run.study_id AND run.kind = 'search' AND run.state = 'active';

-- The ladder that a search might have climbed stood beside the simulations. Now they are the ladder, and
-- each says how many trials reach it: those of older plans counted every trial at every rung.
UPDATE study
   SET plan = jsonb_set(
       plan - 'ladder' #- '{cost,ladder_examples}',
       '{simulations}',
       (SELECT jsonb_agg(jsonb_build_object('trials', spec #> '{search,trials}') || simulation ORDER BY n)
          FROM jsonb_array_elements(plan -> 'simulations') WITH ORDINALITY AS each (simulation, n))
   );
