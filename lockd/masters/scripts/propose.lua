-- Second round of a fence: accept a value only if it is larger than all before it (rule 6).
--
-- KEYS  1 the fence counters (hash)   2 this master's identity (hash)
-- ARGV  1 slot  2 proposed fence  3 block size  4 cluster
-- Returns {status, value, time_us}: 1 accepted, 0 refused with the counter's value, -1 no identity or another cluster's,
--   -3 the counter would pass 2^53

local function answer(status, value)
  local now = redis.call('TIME')
  return {status, value, tonumber(now[1]) * 1000000 + tonumber(now[2])}
end

if redis.call('HGET', KEYS[2], 'cluster') ~= ARGV[4] then return answer(-1, 0) end
-- In this order: fence + block may be beyond what a double can tell apart.
local last = tonumber(ARGV[2]) + (tonumber(ARGV[3]) - 1)
if last >= 9007199254740992 then return answer(-3, 0) end
local counter = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if tonumber(ARGV[2]) <= counter then return answer(0, counter) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', last))
return answer(1, tonumber(ARGV[2]))
