-- Give a lease back on one master (rule 3). Safe to send twice, and to send for a lease that was never granted here.
--
-- KEYS  1 the lease     ARGV  1 token     Returns {1 deleted, 0 not there or not ours}

local lease = redis.call('GET', KEYS[1])
if lease and string.sub(lease, 1, 32) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
