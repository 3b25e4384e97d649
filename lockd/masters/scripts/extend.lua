-- One master's vote for going on with a lease (rules 2, 7, 9).
--
-- KEYS  1 the lease   2 this master's identity (hash)
-- ARGV  1 token  2 ttl_ms  3 cluster  4 "max_hold_ms owner" to put the lease back where it is missing, or "" not to
--       5 age of the lease in ms (used with 4)
-- Returns {status, value, time_us}
--    1 extended            value = ms that it lasts now
--    2 was missing, put back
--    0 held by another     value = how many ms until that one expires here
--    3 missing, and not to be put back
--    4 held for max_hold already
--   -1 no identity, or another cluster's     -2 ttl above this master's ceiling
-- It never shortens: an extension that reached only some masters would otherwise undo the promise made before it.

local now = redis.call('TIME')
local now_us = tonumber(now[1]) * 1000000 + tonumber(now[2])
local function answer(status, value)
  local t = redis.call('TIME')
  return {status, value, tonumber(t[1]) * 1000000 + tonumber(t[2])}
end

local identity = redis.call('HMGET', KEYS[2], 'cluster', 'max_ttl_ms')
if identity[1] ~= ARGV[3] then return answer(-1, 0) end
local ttl_ms = tonumber(ARGV[2])
if ttl_ms > tonumber(identity[2]) then return answer(-2, tonumber(identity[2])) end

local lease = redis.call('GET', KEYS[1])
if not lease then
  if ARGV[4] == '' then return answer(3, 0) end
  local granted_us = string.format('%.0f', now_us - tonumber(ARGV[5]) * 1000)
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. granted_us .. ' ' .. ARGV[4], 'PX', ARGV[2])
  return answer(2, ttl_ms)
end
if string.sub(lease, 1, 32) ~= ARGV[1] then return answer(0, redis.call('PTTL', KEYS[1])) end

if ARGV[4] == '' then
  -- The agent does not know this lease (it was granted by another): the bound on renewals is kept here (rule 7).
  local granted_us, max_hold_ms = string.match(lease, '^%S+ (%d+) (%d+)')
  local left_ms = math.floor(tonumber(max_hold_ms) - (now_us - tonumber(granted_us)) / 1000)
  if left_ms < ttl_ms then return answer(4, left_ms) end
end
local lasts_ms = redis.call('PTTL', KEYS[1])
if lasts_ms < ttl_ms then
  redis.call('PEXPIRE', KEYS[1], ttl_ms)
  lasts_ms = ttl_ms
end
return answer(1, lasts_ms)
