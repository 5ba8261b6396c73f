-- What stands beside each epsilon of a ledger is counted over the studies of its dataset: without this, over all.
CREATE INDEX ix_study_dataset ON study (dataset);
