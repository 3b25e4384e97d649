-- One master's vote for a lease (rules 4, 6, 8, 9 of the design: see lockd/core/__init__.py).
--
-- KEYS  1 the lease   2 the fence counters (hash)   3 this master's identity (hash)
-- ARGV  1 token  2 "max_hold_ms owner" (0: extended by its own agent only)  3 ttl_ms  4 fence slot  5 fence hint  6 fence block size  7 cluster
-- Returns {status, value, time_us}
--    1 granted             value = the first fence of the block reserved
--    0 held by another     value = how many ms until it expires here
--   -1 no identity, or another cluster's     -2 ttl above this master's ceiling (value = the ceiling in ms)
--   -3 the fence counter would pass 2^53
-- time_us is read first: Redis decides what has expired by a time that it froze before the script began, so a clock jump
-- that ended a key early is seen in it (rule 11c).

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', KEYS[3], 'cluster', 'max_ttl_ms', 'was_max_ttl_ms')
if identity[1] ~= ARGV[7] then return {-1, 0, now_us} end
local ceiling_ms = tonumber(identity[2])
if tonumber(ARGV[3]) > ceiling_ms then return {-2, ceiling_ms, now_us} end

local fence = (call('HGET', KEYS[2], ARGV[4]) or 0) + 1
local hint = tonumber(ARGV[5])
if hint > fence then fence = hint end
-- In this order: fence + block may be beyond what a double can tell apart.
local last = fence + (ARGV[6] - 1)
if last >= 9007199254740992 then return {-3, 0, now_us} end

-- %.0f: Lua would write a number this large as 1.7e+15 and lose its end.
local lease = string.format('%s %.0f %s', ARGV[1], now_us, ARGV[2])
if not call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[3]) then
  -- Free or mine: a retry after a lost answer must not be beaten by itself (rule 4).
  if string.sub(call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then
    -- Nobody relies on a lease for longer than the ceiling, or than the one before it was lowered (rule 9). One that has
    -- more to go outlived a clock that was set back, and would block for as long as that was.
    local longest_ms = math.max(ceiling_ms, tonumber(identity[3] or 0))
    local lasts_ms = call('PTTL', KEYS[1])
    if lasts_ms > longest_ms or lasts_ms < 0 then
      call('PEXPIRE', KEYS[1], longest_ms)
      lasts_ms = longest_ms
    end
    return {0, lasts_ms, now_us}
  end
  call('PEXPIRE', KEYS[1], ARGV[3])
end
call('HSET', KEYS[2], ARGV[4], string.format('%.0f', last))
return {1, fence, now_us}
