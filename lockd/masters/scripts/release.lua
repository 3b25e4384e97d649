-- Give a lease back on one master (rule 3). Safe to send twice, and to send for a lease that was never granted here.
--
-- KEYS  1 the lease
-- ARGV  1 nonce of the try that it came from; or, with "app" behind it, the token that its app has (rule 4)
--       2 ... nonces that it had before an agent took it over from another (rule 13)
-- Returns {1 deleted, 0 not there or not ours}

local lease = redis.call('GET', KEYS[1])
if not lease then return 0 end
local word = string.sub(lease, 1, 32)
if ARGV[2] == 'app' then
  word = string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ =(.*)$')
    or string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ p%d+ =(.*)$') or word
end
local names = ARGV[2] == 'app' and 1 or #ARGV
for i = 1, names do
  if word == ARGV[i] then return redis.call('DEL', KEYS[1]) end
end
return 0
