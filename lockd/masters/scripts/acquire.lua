-- One master's vote for a lease (rules 4, 6, 8, 9 of the design: see lockd/core/__init__.py).
--
-- KEYS  1 the lease   2 the fence counters (hash)
-- ARGV  1 nonce of the try  2 "max_hold_ms owner" (0: extended by its own agent only; 00: which may also keep it while
--         no app has it) and " =token" where the app chose one  3 ttl_ms  4 fence slot  5 fence hint  6 fence block size
--       7 the place that its host waits under, "HOST AGENT", or "": nobody there waits  8 for how long it has, in us; or "asks": nobody
--         there waits, and who has the resource is asked under that name whether it only keeps it
--       9 the grace that it takes, in ms  last: electorate
-- Returns {status, value, time_us}, and with status 0 and 6 a fourth
--    1 granted             value = the first fence of the block reserved
--    0 held by another     value = how many ms until it expires here; then the nonce of that lease
--    6 the same, and its agent was asked whether it only keeps it
--    5 reserved for the host whose turn it is     value = for how many ms
--   -1 no identity, or not this electorate     -2 ttl above this master's ceiling (value = the ceiling in ms)
--   -3 the fence counter is wrong: a day ahead of this clock, at 2^52, or no number
--   -5 what is there is no lease
-- Who waits and is refused leaves its place here: by this clock less how long it has waited, so that clocks of hosts
-- order nothing. Whoever has the resource while others wait is told so, once in 20 ms, and the one who is next then, that
-- it is held; last of all, as a notice that can't be given must not undo what was done.
-- time_us is read first: Redis decides what has expired by a time that it froze before the script began, so a clock jump
-- that ended a key early is seen in it (rule 11c).
-- What somebody else has put there (a lost app host may: another type, any text, no end) is nobody's vote, and takes no
-- other resource along. It may have been put over a lease on which its holder still relies: so it ends when the longest
-- lease would, and not before (rule 9).
-- The identity is no KEY: agents may only read it, and Redis takes for granted that a script writes to all its KEYS. Nor
-- are the places (hash; of each when it began to wait, until when it lasts, in us, and its grace), which are seldom there.

local call = redis.call
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]

local identity = call('HMGET', 'lockd:identity', 'electorate', 'max_ttl_ms')
if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end
local ceiling_ms = tonumber(identity[2])
if tonumber(ARGV[3]) > ceiling_ms then return {-2, ceiling_ms, now_us} end

local stored = redis.pcall('HGET', KEYS[2], ARGV[4]) or '0'
-- See extend.lua: such a counter is not wrong.
if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE') then return stored end
local counter = tonumber(stored) or math.huge
local fence, hint = counter + 1, tonumber(ARGV[5])
-- A hint half a day ahead comes from a broken clock. It would be this counter's floor for ever, and spread to the other
-- masters: the vote is given without it.
local block = ARGV[6] - 1
if hint > fence and hint + block <= now_us + 43200000000 then fence = hint end
local last = fence + block
-- As a 'not': it is true of what is no number (nan), too.
if not (last <= now_us + 86400000000 and last < 4503599627370496) then return {-3, 0, now_us} end

local asks = ARGV[8] == 'asks'
local place = asks and '' or ARGV[7]

-- %.0f: Lua would write a number this large as 1.7e+15 and lose its end. Not %s: that ends at the first zero byte.
local lease = ARGV[1] .. string.format(' %.0f ', now_us) .. ARGV[2]
local granted, shown = call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[3]), nil
if not granted then
  -- Free or mine: a retry after a lost answer must not be beaten by itself. 'Mine' is this very try: two for which their
  -- apps chose the same token exclude each other like any others (rule 4).
  shown = redis.pcall('GET', KEYS[1])
  -- See extend.lua.
  if type(shown) == 'table' and not string.find(shown.err, 'WRONGTYPE') then return shown end
  if type(shown) == 'table' then shown = '' end
  if place ~= '' and shown == 'reserved ' .. place then
    granted = call('SET', KEYS[1], lease, 'PX', ARGV[3])
  elseif string.sub(shown, 1, 32) == ARGV[1] then
    granted = call('PEXPIRE', KEYS[1], ARGV[3])
  end
end
if granted then
  call('HSET', KEYS[2], ARGV[4], string.format('%.0f', last))
  if place == '' then return {1, fence, now_us} end
end

local resource = string.sub(KEYS[1], 13)
local places, lives_us = 'lockd:places:' .. resource, 4000000

-- Who else waits here: how many, and those that came first and last. Those that nobody renews any more are forgotten.
-- Nothing where the agent's user may not ask that yet: it votes all the same. More than 128 come from no agent, nor does
-- another type: they are dropped before they are read.
local function others()
  local count, oldest, youngest, oldest_us, youngest_us, mine_until_us, recalled = 0, nil, nil, nil, nil, nil, ''
  local size = redis.pcall('HLEN', places)
  if type(size) == 'table' or size > 128 then
    redis.pcall('DEL', places)
    return nil
  end
  local flat = call('HGETALL', places)
  for i = 1, #flat, 2 do
    local began, ends = string.match(flat[i + 1], '^(%d+) (%d+) %d+$')
    local ends_us, began_us = tonumber(ends), tonumber(began)
    if flat[i] == 'recalled' then
      recalled = flat[i + 1]
    elseif not ends or ends_us <= now_us or ends_us > now_us + lives_us then
      call('HDEL', places, flat[i])
    elseif flat[i] == place then
      mine_until_us = ends_us
    else
      count = count + 1
      if not youngest or began_us > youngest_us or (began_us == youngest_us and flat[i] > youngest) then
        youngest, youngest_us = flat[i], began_us
      end
      if not oldest or began_us < oldest_us or (began_us == oldest_us and flat[i] < oldest) then
        oldest, oldest_us = flat[i], began_us
      end
    end
  end
  return count, oldest, youngest, youngest_us, mine_until_us, recalled
end

local function recall(holder, nonce)
  call('HSET', places, 'recalled', string.format('%.0f ', now_us) .. nonce)
  call('PEXPIRE', places, lives_us / 1000)
  redis.pcall('PUBLISH', 'lockd:host:' .. holder, 'recall ' .. nonce .. ' ' .. resource)
end

-- Renewed at half its life: not each refusal is written to the disk. Where all 32 are taken, the youngest goes.
local function wait_in_line(holder, nonce)
  local count, _, youngest, youngest_us, mine_until_us, recalled = others()
  if not count then return end
  local began_us = now_us - ARGV[8]
  if count >= 32 and began_us < youngest_us then
    call('HDEL', places, youngest)
    count = count - 1
  end
  if count < 32 and not (mine_until_us and mine_until_us - now_us > lives_us / 2) then
    call('HSET', places, place, string.format('%.0f %.0f ', began_us, now_us + lives_us) .. ARGV[9])
    call('PEXPIRE', places, lives_us / 1000)
  end
  local recalled_us, whom = string.match(recalled, '^(%d+) (.*)$')
  local ago_us = now_us - (recalled_us or 0)
  local lately = whom == nonce and ago_us >= 0 and ago_us < 20000
  if holder and not lately then recall(holder, nonce) end
end

if not granted then
  -- Nobody relies on a lease for longer than the ceiling, or than the one before it was lowered (rule 9). One that has
  -- more to go outlived a clock that was set back, and would block for as long as that was. No grace is longer either.
  local reserved, nonce = string.match(shown, '^reserved '), string.sub(shown, 1, 32)
  local before_ms = tonumber(call('HGET', 'lockd:identity', 'was_max_ttl_ms') or 0)
  local longest_ms = reserved and 250 or math.max(ceiling_ms, before_ms)
  local lasts_ms = call('PTTL', KEYS[1])
  if lasts_ms > longest_ms or lasts_ms < 0 then
    call('PEXPIRE', KEYS[1], longest_ms)
    lasts_ms = longest_ms
  end
  if not (reserved or string.match(shown, '^' .. string.rep('%x', 32) .. ' %d+ %d+ %S+ %d+ %d+')) then
    return {-5, 0, now_us}
  end
  if place ~= '' then wait_in_line(string.match(shown, '^%S+ %d+ %d+ (%S+) '), nonce) end
  if reserved then return {5, lasts_ms, now_us} end
  local keeper = asks and string.match(shown, '^%S+ %d+ 00 (%S+) ')
  if keeper then
    redis.pcall('PUBLISH', 'lockd:host:' .. keeper, 'ask ' .. nonce .. ' ' .. ARGV[7] .. ' ' .. resource)
  end
  return {keeper and 6 or 0, lasts_ms, now_us, nonce}
end
local count, oldest, _, _, mine_until_us = others()
if mine_until_us then call('HDEL', places, place) end
if count and count > 0 then
  recall(string.match(place, '^%S+'), ARGV[1])
  -- It rests until it is told that it is free. What is DETACHED ends at its TTL, and then nobody would tell it.
  local host, agent = string.match(oldest, '^(%S+) (.*)$')
  if string.sub(ARGV[2], 1, 1) == '0' then
    redis.pcall('PUBLISH', 'lockd:host:' .. host, 'held ' .. agent .. ' ' .. resource)
  end
end
return {1, fence, now_us}
