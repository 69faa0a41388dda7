-- Lets only the holder of the lock write to the table. It may be run again. To lift it: DROP TRIGGER lockstep_guard ON {protected}
--
-- The trigger runs once for each statement, whatever the number of rows, also when that is none.
CREATE OR REPLACE TRIGGER lockstep_guard
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {protected}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}({resource});
