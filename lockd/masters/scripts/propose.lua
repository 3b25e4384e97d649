-- Second round of a fence: accept a value only if it is larger than all before it (rule 6).
--
-- KEYS  1 the fence counters (hash)   2 this master's identity (hash)
-- ARGV  1 slot  2 proposed fence  3 block size  4 cluster
-- Returns {status, value, time_us}: 1 accepted, 0 refused with the counter's value, -1 no identity or another cluster's,
--   -3 the counter would pass 2^53

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

if call('HGET', KEYS[2], 'cluster') ~= ARGV[4] then return {-1, 0, now_us} end
local proposed = tonumber(ARGV[2])
-- In this order: proposed + block may be beyond what a double can tell apart.
local last = proposed + (ARGV[3] - 1)
if last >= 9007199254740992 then return {-3, 0, now_us} end
local counter = tonumber(call('HGET', KEYS[1], ARGV[1]) or '0')
if proposed <= counter then return {0, counter, now_us} end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f', last))
return {1, proposed, now_us}
