-- The largest max TTL that a master goes by: while it is being lowered, the one of before still counts (rule 9). By
-- replace_master.yml, as lockd_admin and with EVAL: no master loads it.
--
-- KEYS  1 this master's identity (hash)
-- Returns it in ms, as text; '0' of a blank master.

local ttls = redis.call('HMGET', KEYS[1], 'max_ttl_ms', 'was_max_ttl_ms')
return tostring(math.floor(math.max(tonumber(ttls[1] or 0), tonumber(ttls[2] or 0))))
