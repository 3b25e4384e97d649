-- Write a blank master's identity: the last step of forming a cluster and of admitting a master (rule 8).
--
-- KEYS  1 this master's identity (hash)   2 the fence counters (hash)
-- ARGV  1 cluster  2 name  3 max_ttl_ms   then slot, counter, slot, counter ... to begin from
-- Returns 1 written, 0 not blank any more: nothing was changed.

if redis.call('DBSIZE') > 0 then return 0 end
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'cluster', ARGV[1], 'name', ARGV[2], 'max_ttl_ms', ARGV[3])
return 1
