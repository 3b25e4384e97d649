-- One master's vote for a lease (rules 4, 6, 8, 9 of the design: see lockd/core/__init__.py).
--
-- KEYS  1 the lease   2 the fence counters (hash)
-- ARGV  1 nonce of the try  2 "max_hold_ms owner" (0: extended by its own agent only) and " =token" where the app
--         chose one  3 ttl_ms  4 fence slot  5 fence hint  6 fence block size  last: electorate
-- Returns {status, value, time_us}, and with status 0 a fourth
--    1 granted             value = the first fence of the block reserved
--    0 held by another     value = how many ms until it expires here; then the nonce of that lease
--   -1 no identity, or not this electorate     -2 ttl above this master's ceiling (value = the ceiling in ms)
--   -3 the fence counter is wrong: a day ahead of this clock, at 2^52, or no number
-- time_us is read first: Redis decides what has expired by a time that it froze before the script began, so a clock jump
-- that ended a key early is seen in it (rule 11c).
-- The identity is no KEY: agents may only read it, and Redis takes for granted that a script writes to all its KEYS.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', 'lockd:identity', 'electorate', 'max_ttl_ms', 'was_max_ttl_ms')
if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end
local ceiling_ms = tonumber(identity[2])
if tonumber(ARGV[3]) > ceiling_ms then return {-2, ceiling_ms, now_us} end

local counter = tonumber(call('HGET', KEYS[2], ARGV[4]) or '0') or math.huge
local fence, hint = counter + 1, tonumber(ARGV[5])
-- A hint half a day ahead comes from a broken clock. It would be this counter's floor for ever, and spread to the other
-- masters: the vote is given without it.
local block = ARGV[6] - 1
if hint > fence and hint + block <= now_us + 43200000000 then fence = hint end
local last = fence + block
-- As a 'not': it is true of what is no number (nan), too.
if not (last <= now_us + 86400000000 and last < 4503599627370496) then return {-3, 0, now_us} end

-- %.0f: Lua would write a number this large as 1.7e+15 and lose its end. Not %s: that ends at the first zero byte.
local lease = ARGV[1] .. string.format(' %.0f ', now_us) .. ARGV[2]
if not call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[3]) then
  -- Free or mine: a retry after a lost answer must not be beaten by itself. 'Mine' is this very try: two for which their
  -- apps chose the same token exclude each other like any others (rule 4).
  local nonce = string.sub(call('GET', KEYS[1]), 1, 32)
  if nonce ~= ARGV[1] then
    -- Nobody relies on a lease for longer than the ceiling, or than the one before it was lowered (rule 9). One that has
    -- more to go outlived a clock that was set back, and would block for as long as that was.
    local longest_ms = math.max(ceiling_ms, tonumber(identity[3] or 0))
    local lasts_ms = call('PTTL', KEYS[1])
    if lasts_ms > longest_ms or lasts_ms < 0 then
      call('PEXPIRE', KEYS[1], longest_ms)
      lasts_ms = longest_ms
    end
    return {0, lasts_ms, now_us, nonce}
  end
  call('PEXPIRE', KEYS[1], ARGV[3])
end
call('HSET', KEYS[2], ARGV[4], string.format('%.0f', last))
return {1, fence, now_us}
