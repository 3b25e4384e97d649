-- Write a max TTL into a master's identity, and keep the larger one of before beside it: leases that were granted under it
-- may live on (rule 9). By change_max_ttl.yml, as lockd_admin and with EVAL: no master loads it, so no agent can call it.
--
-- KEYS  1 this master's identity (hash)
-- ARGV  1 the max TTL in ms
-- Returns 'changed'; 'same' it has it already; 'blank' there is no identity, which gets the right one when it is admitted.

local call = redis.call
local now = call('HGET', KEYS[1], 'max_ttl_ms')
if not now then return 'blank' end
if now == ARGV[1] then return 'same' end

local was = math.max(tonumber(now), tonumber(call('HGET', KEYS[1], 'was_max_ttl_ms') or 0))
if was > tonumber(ARGV[1]) then
  call('HSET', KEYS[1], 'was_max_ttl_ms', was)
else
  call('HDEL', KEYS[1], 'was_max_ttl_ms')
end
call('HSET', KEYS[1], 'max_ttl_ms', ARGV[1])
return 'changed'
