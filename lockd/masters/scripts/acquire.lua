-- One master's vote for a lease (rules 4, 6, 8, 9 of the design: see lockd/core/__init__.py).
--
-- KEYS  1 the lease   2 the fence counters (hash)   3 this master's identity (hash)
-- ARGV  1 token  2 "max_hold_ms owner"  3 ttl_ms  4 fence slot  5 fence hint  6 fence block size  7 cluster
-- Returns {status, value, time_us}
--    1 granted             value = the first fence of the block reserved
--    0 held by another     value = how many ms until it expires here
--   -1 no identity, or another cluster's     -2 ttl above this master's ceiling (value = the ceiling in ms)
--   -3 the fence counter would pass 2^53
-- time_us is read after every key was looked at, so a clock jump that expired one is seen in it (rule 11c).

local function answer(status, value)
  local now = redis.call('TIME')
  return {status, value, tonumber(now[1]) * 1000000 + tonumber(now[2])}
end

local identity = redis.call('HMGET', KEYS[3], 'cluster', 'max_ttl_ms')
if identity[1] ~= ARGV[7] then return answer(-1, 0) end
local ceiling_ms = tonumber(identity[2])
if tonumber(ARGV[3]) > ceiling_ms then return answer(-2, ceiling_ms) end

local fence = tonumber(redis.call('HGET', KEYS[2], ARGV[4]) or '0') + 1
local hint = tonumber(ARGV[5])
if hint > fence then fence = hint end
-- In this order: fence + block may be beyond what a double can tell apart.
local last = fence + (tonumber(ARGV[6]) - 1)
if last >= 9007199254740992 then return answer(-3, 0) end

local now = redis.call('TIME')
local lease = ARGV[1] .. ' ' .. now[1] .. string.format('%06d', now[2]) .. ' ' .. ARGV[2]
if not redis.call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[3]) then
  -- Free or mine: a retry after a lost answer must not be beaten by itself (rule 4).
  if string.sub(redis.call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then
    return answer(0, redis.call('PTTL', KEYS[1]))
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
-- %.0f: Lua would write a number this large as 1.7e+15 and lose its end.
redis.call('HSET', KEYS[2], ARGV[4], string.format('%.0f', last))
return answer(1, fence)
