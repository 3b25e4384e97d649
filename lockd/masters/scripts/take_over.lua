-- One master's vote for going on with a lease of the agent that was on the same host before (rules 2, 9, 13).
--
-- KEYS  1 the lease
-- ARGV  1 the nonce that it has from now on  2 ttl_ms  3 the mark of the last proof that is known of ("pN")
--       4 the token that its app has, or ""  5 how many ms ago it was proven last, or "later" when it was proven under its new
--         nonce already
--       6 ... the nonces that it may have here  last: electorate
-- Returns {status, value, time_us}
--    1 extended, and known by its new nonce only     value = the ttl
--    2 the same, but it was put back since that proof: another may have held the resource in between; or it had its old nonce
--      until now, and came there since that proof, or, later, at all: what the agent before still had under way may have put
--      it there. It has this proof's mark then, and counts from the next one on
--    0 held by another, or no lease (see acquire.lua)     value = how many ms until that expires here     3 missing
--   -1 no identity, or not this electorate     -2 ttl above this master's ceiling
-- What the agent before had under way names the old nonce, and misses from then on; so does another agent that takes the
-- lease over. Asked again, it says the same.
-- It puts nothing back, and never shortens. time_us is read first: see extend.lua. The identity is no KEY: agents may only
-- read it, and Redis takes for granted that a script writes to all its KEYS.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', 'lockd:identity', 'electorate', 'max_ttl_ms')
if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end
local ttl_ms = tonumber(ARGV[2])
if ttl_ms > tonumber(identity[2]) then return {-2, tonumber(identity[2]), now_us} end

local lease = redis.pcall('GET', KEYS[1])
if not lease then return {3, 0, now_us} end
-- See extend.lua.
if type(lease) == 'table' and not string.find(lease.err, 'WRONGTYPE') then return lease end
if type(lease) == 'table' then lease = '' end
local lasts_ms = call('PTTL', KEYS[1])
local nonce, terms, rest = string.match(lease, '^(%S+)( %d+ %d+ %S+ %d+ %d+)(.*)$')
local mine = nonce == ARGV[1]
for i = 6, #ARGV - 1 do mine = mine or nonce == ARGV[i] end
if not (nonce and mine) then return {0, lasts_ms, now_us} end

local mark = string.match(rest, '^ p(%d+)')
local there_ms = (now_us - string.match(terms, '%d+')) / 1000
if nonce ~= ARGV[1] and (ARGV[5] == 'later' or there_ms < tonumber(ARGV[5])) then mark = string.sub(ARGV[3], 2) end
local put_back = mark and ' p' .. mark or ''
local shown = ARGV[4] ~= '' and ' =' .. ARGV[4] or ''
if lasts_ms < ttl_ms then lasts_ms = ttl_ms end
call('SET', KEYS[1], ARGV[1] .. terms .. put_back .. shown, 'PX', lasts_ms)
return {mark and tonumber(mark) >= tonumber(string.sub(ARGV[3], 2)) and 2 or 1, ttl_ms, now_us}
