-- A fence is proposed: accept it only if it is larger than all before it (rule 6).
--
-- KEYS  1 the fence counters (hash)   2 for the next block of a tenure: the lease
-- ARGV  1 slot  2 proposed fence  3 block size  4 nonce of the tenure, or ""  last: electorate
-- Returns {status, value, time_us}: 1 accepted, 0 refused with the counter's value, 3 another tenure is here, or none:
--   what is accepted for one that is over would be above the fences of who has it now; -1 no identity or not this electorate,
--   -3 the counter is wrong (see acquire.lua), -4 the proposal is half a day ahead of this clock
-- The identity is no KEY: agents may only read it, and Redis takes for granted that a script writes to all its KEYS.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

if call('HGET', 'lockd:identity', 'electorate') ~= ARGV[#ARGV] then return {-1, 0, now_us} end
if KEYS[2] then
  local lease = redis.pcall('GET', KEYS[2])
  if type(lease) == 'table' and not string.find(lease.err, 'WRONGTYPE') then return lease end
  if type(lease) ~= 'string' or string.sub(lease, 1, 32) ~= ARGV[4] then return {3, 0, now_us} end
end
local proposed = tonumber(ARGV[2])
local last = proposed + (ARGV[3] - 1)
local stored = redis.pcall('HGET', KEYS[1], ARGV[1]) or '0'
-- See extend.lua.
if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE') then return stored end
local counter = tonumber(stored) or math.huge
-- As a 'not': it is true of what is no number (nan), too.
if not (counter <= now_us + 86400000000 and counter < 4503599627370496) then return {-3, 0, now_us} end
if last > now_us + 43200000000 or last >= 4503599627370496 then return {-4, 0, now_us} end
if proposed <= counter then return {0, counter, now_us} end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f', last))
return {1, proposed, now_us}
