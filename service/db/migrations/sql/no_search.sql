-- A study without a search, in the journal: what is trained with was given, so nothing else is read.

ALTER TABLE ledger_reservation DROP CONSTRAINT ledger_reservation_search_accounting_check;
ALTER TABLE ledger_reservation ADD CONSTRAINT ledger_reservation_search_accounting_check CHECK (
    search_accounting IN ('public_proxy', 'accounted', 'private_selection', 'disjoint_split',
        'declared_unaccounted', 'no_search'));
