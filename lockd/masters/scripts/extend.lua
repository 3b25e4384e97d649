-- One master's vote for going on with a lease (rules 2, 7, 9).
--
-- KEYS  1 the lease
-- ARGV  1 its nonce, or, with an empty 3, the token that its app has (rule 4)  2 ttl_ms
--       3 the mark of the last proof ("pN") when its own agent asks, or ""
--       "hide" when the token that its app has is to be shown no more: it is handed on  last: electorate
-- Returns {status, value, time_us}
--    1 extended            value = ms that may be relied upon: the ttl, or what max_hold leaves of it
--    2 extended, but it was put back since that proof, or behind a later one (this may be asked again when the put-back
--      has been here already); or, with an empty 3, at all: another may have held the resource in between, and only its
--      own agent knows
--    0 held by another, or no lease (see acquire.lua)     value = how many ms until that expires here
--    3 missing
--    4 held for max_hold already (asked only with an empty 3)
--    7 as 1, and another agent has extended it, too, since it was granted
--   -1 no identity, or not this electorate     -2 ttl above this master's ceiling
-- It puts nothing back: that is for put_back.lua, behind a proof.
-- time_us is read first: Redis decides what has expired by a time that it froze before the script began, so a clock jump
-- that ended a key early is seen in it (rule 11c).
-- It never shortens: an extension that reached only some masters would otherwise undo the promise made before it. It is
-- written also where it lasts long enough: whoever confirms an extension can make one.
-- What may not be read, for any reason but its type, is an error of this master, and no answer about the lease.
-- What an agent extends that does not know the lease is marked: its max_hold_ms gets a 0 in front. Its own agent, which was
-- told to give it back earlier, then does not (release.lua, "early"): who was told that it is extended relies on that (rule 2).
-- The identity is no KEY: agents may only read it, and Redis takes for granted that a script writes to all its KEYS.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', 'lockd:identity', 'electorate', 'max_ttl_ms')
if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end
local ttl_ms = tonumber(ARGV[2])
if ttl_ms > tonumber(identity[2]) then return {-2, tonumber(identity[2]), now_us} end

local lease = redis.pcall('GET', KEYS[1])
if not lease then return {3, 0, now_us} end
if type(lease) == 'table' and not string.find(lease.err, 'WRONGTYPE') then return lease end
if type(lease) == 'table' then lease = '' end
local nonce, granted_us, max_hold_ms, rest = string.match(lease, '^(%S+) (%d+) (%d+) %S+ %d+ %d+(.*)$')
if not nonce then return {0, call('PTTL', KEYS[1]), now_us} end
local mark = string.match(rest, '^ p(%d+)')
local word = nonce
if ARGV[3] == '' then word = string.match(rest, '^ =(.*)$') or string.match(rest, '^ p%d+ =(.*)$') or nonce end
if word ~= ARGV[1] then return {0, call('PTTL', KEYS[1]), now_us} end

if ARGV[3] == '' then
  -- The agent does not know this lease (it was granted by another): the bound on renewals is kept here (rule 7).
  local left_ms = math.floor(max_hold_ms - (now_us - granted_us) / 1000)
  if left_ms <= 0 then return {4, 0, now_us} end
  ttl_ms = math.min(ttl_ms, left_ms)
end
local lasts_ms = math.max(call('PTTL', KEYS[1]), ttl_ms)
local put_back = mark and (ARGV[3] == '' or tonumber(mark) >= tonumber(string.sub(ARGV[3], 2)))
local elsewhere = string.match(max_hold_ms, '^0.*[1-9]')
if ARGV[3] == '' and not (elsewhere or put_back) then
  local began = nonce .. ' ' .. granted_us .. ' '
  call('SET', KEYS[1], began .. '0' .. string.sub(lease, #began + 1), 'KEEPTTL')
end
if ARGV[4] == 'hide' and #ARGV == 5 then
  local bare = string.sub(lease, 1, #lease - #rest) .. (mark and ' p' .. mark or '')
  if bare ~= lease then call('SET', KEYS[1], bare, 'KEEPTTL') end
end
call('PEXPIRE', KEYS[1], lasts_ms)
return {put_back and 2 or ARGV[3] ~= '' and elsewhere and 7 or 1, ttl_ms, now_us}
