-- A lease that a quorum has just proven is put on a master that never had it (rules 2, 9).
--
-- KEYS  1 the lease
-- ARGV  1 nonce  2 ttl_ms  3 "max_hold_ms owner pN" (N numbers that proof: extend.lua counts it for what is asked
--         behind the next one) and " =token" where the app chose one  4 age of the lease in ms  last: electorate
-- Returns {status, value, time_us}
--    2 put there           value = the ttl
--    1 it was there already     0 held by another, or no lease (see acquire.lua)     value = how many ms until it expires here
--   -1 no identity, or not this electorate     -2 ttl above this master's ceiling
-- time_us is read first: see extend.lua. The identity is no KEY: agents may only read it, and Redis takes for granted that
-- a script writes to all its KEYS.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', 'lockd:identity', 'electorate', 'max_ttl_ms')
if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end
local ttl_ms = tonumber(ARGV[2])
if ttl_ms > tonumber(identity[2]) then return {-2, tonumber(identity[2]), now_us} end

-- As in acquire.lua.
local lease = ARGV[1] .. string.format(' %.0f ', now_us - ARGV[4] * 1000) .. ARGV[3]
if call('SET', KEYS[1], lease, 'NX', 'PX', ttl_ms) then return {2, ttl_ms, now_us} end
local there = redis.pcall('GET', KEYS[1])
-- See extend.lua.
if type(there) == 'table' and not string.find(there.err, 'WRONGTYPE') then return there end
local mine = type(there) == 'string' and string.sub(there, 1, 32) == ARGV[1]
return {mine and 1 or 0, call('PTTL', KEYS[1]), now_us}
