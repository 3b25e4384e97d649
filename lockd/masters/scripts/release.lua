-- Give a lease back on one master (rule 3). Safe to send twice, and to send for a lease that was never granted here.
--
-- KEYS  1 the lease
-- ARGV  1 nonce of the try that it came from; or, with a second argument, the token that its app has (rule 4)
-- Returns {1 deleted, 0 not there or not ours}

local lease = redis.call('GET', KEYS[1])
if not lease then return 0 end
local word = string.sub(lease, 1, 32)
if ARGV[2] then
  word = string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ =(.*)$')
    or string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ p%d+ =(.*)$') or word
end
if word == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
