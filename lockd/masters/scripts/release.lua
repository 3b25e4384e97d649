-- Give a lease back on one master (rule 3). Safe to send twice, and to send for a lease that was never granted here.
--
-- KEYS  1 the lease
-- ARGV  1 nonce of the try that it came from; with "app" behind it, the token that its app has (rule 4); with "pass", the
--         place for which it is reserved ("HOST AGENT", see acquire.lua): its turn has come, and it wants nothing
--       2 "app"; "pass"; "try": it is of a try that failed; "forced"; "early": before its TTL ends, as its app wants
--         it: not where another agent has extended it since (extend.lua); "turn": its host has had its turn, and waits for
--         the next one; "again": so it has, by other masters: nothing is given back; "freed", "used": nor here, and who has
--         asked for it is told that it was given back before, or is in use; or ... nonces that it had before an agent took
--         it over from another (rule 13)
--       3 the place of that host, or of who has asked; of a try: of who goes on trying, where it waits
--       4 the grace that it takes, in ms   5 "try", "again": for how long it has waited, in us
-- Returns {1 deleted, 0 not there or not ours}
-- What is deleted goes to whoever waits for the longest: the resource is reserved for its grace, it is told so, and the
-- one behind it when that ends. Not by a try that failed: somebody else has it, or nobody has, and they try anyway. Its
-- host gets back the place that the vote for it took: else this master would have another line than the others, and call
-- up whoever is not called up by them.

local call = redis.call
local how, resource = ARGV[2], string.sub(KEYS[1], 13)
if how == 'freed' or how == 'used' then
  local host, agent = string.match(ARGV[3], '^(%S+) (%S+)$')
  redis.pcall('PUBLISH', 'lockd:host:' .. host, how .. ' ' .. agent .. ' ' .. resource)
  return 0
end

local places = 'lockd:places:' .. resource
-- As in acquire.lua. 32 have a place, by and large: what is over is not looked for here. A master that has lost its data
-- is written nothing: it would not be blank any more, and could not be admitted.
local function waits_in_line(place, waited_us, grace_ms)
  local size = redis.pcall('HLEN', places)
  if type(size) == 'table' or not call('HGET', 'lockd:identity', 'electorate') then return end
  local there = call('HDEL', places, place)
  if size - there >= 32 then return end
  local now = call('TIME')
  local now_us = now[1] * 1000000 + now[2]
  call('HSET', places, place, string.format('%.0f %.0f ', now_us - waited_us, now_us + 4000000) .. grace_ms)
  call('PEXPIRE', places, 4000)
end
if how == 'again' then
  waits_in_line(ARGV[3], ARGV[5], ARGV[4])
  return 0
end

local lease = redis.pcall('GET', KEYS[1])
if not lease then return 0 end
-- See extend.lua.
if type(lease) == 'table' and not string.find(lease.err, 'WRONGTYPE') then return lease end
-- Of another type: see acquire.lua. It has no name but '', and is taken away by force only.
if type(lease) == 'table' then return how == 'forced' and ARGV[1] == '' and call('DEL', KEYS[1]) or 0 end
local word = string.sub(lease, 1, 32)
if how == 'app' then
  word = string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ =(.*)$')
    or string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ p%d+ =(.*)$') or word
elseif how == 'pass' then
  word = string.match(lease, '^reserved (.*)$')
end
local one = how == 'app' or how == 'pass' or how == 'try' or how == 'forced' or how == 'turn' or how == 'early'
local mine = false
for i = 1, one and 1 or #ARGV do mine = mine or word == ARGV[i] end
if not mine or how == 'early' and string.match(lease, '^%S+ %d+ 0%d*[1-9]') then return 0 end
if how == 'try' then
  call('DEL', KEYS[1])
  if ARGV[3] then waits_in_line(ARGV[3], ARGV[5], ARGV[4]) end
  return 1
end

local flat, size = {}, redis.pcall('HLEN', places)
if type(size) == 'table' or size > 128 then
  redis.pcall('DEL', places)
  how = how ~= 'turn' and how
else
  flat = call('HGETALL', places)
end
if how ~= 'turn' and #flat == 0 then
  call('DEL', KEYS[1])
else
  local now = call('TIME')
  local now_us = now[1] * 1000000 + now[2]
  local first, second, count = nil, nil, 0

  local function is_before(one_there, other)
    if not other then return true end
    if one_there.began_us ~= other.began_us then return one_there.began_us < other.began_us end
    return one_there.place < other.place
  end

  local function waits(place, began_us, grace_ms)
    local host, agent = string.match(place, '^(%S+) (%S+)$')
    local one_there = {place = place, host = host, agent = agent, began_us = began_us, grace_ms = grace_ms}
    count = count + 1
    if is_before(one_there, first) then
      first, second = one_there, first
    elseif is_before(one_there, second) then
      second = one_there
    end
  end

  for i = 1, #flat, 2 do
    local began, ends, grace = string.match(flat[i + 1], '^(%d+) (%d+) (%d+)$')
    -- See acquire.lua. Its own begins anew.
    if how == 'turn' and flat[i] == ARGV[3] then
      ends = nil
    end
    if ends and tonumber(ends) > now_us and tonumber(ends) <= now_us + 4000000 then
      waits(flat[i], tonumber(began), tonumber(grace))
    end
  end
  -- It is the youngest: where all places are taken, it has none.
  if how == 'turn' and count < 32 then
    waits(ARGV[3], now_us, tonumber(ARGV[4]))
    call('HSET', places, ARGV[3], string.format('%.0f %.0f ', now_us, now_us + 4000000) .. ARGV[4])
    call('PEXPIRE', places, 4000)
  end

  if not first then
    call('DEL', KEYS[1])
  else
    local grace_ms = math.max(5, math.min(250, first.grace_ms))
    call('SET', KEYS[1], 'reserved ' .. first.place, 'PX', grace_ms)
    call('HDEL', places, first.place)
    local function tell(one_there, wait_ms)
      local notice = 'turn ' .. one_there.agent .. ' ' .. wait_ms .. ' ' .. resource
      redis.pcall('PUBLISH', 'lockd:host:' .. one_there.host, notice)
    end
    tell(first, 0)
    if second then tell(second, grace_ms) end
  end
end
-- Its own agent has not heard of either, and may renew it.
if how == 'forced' or how == 'app' then
  local nonce, holder = string.match(lease, '^(%S+) %d+ %d+ (%S+) ')
  local notice = how == 'forced' and 'gone ' or 'released '
  if holder then redis.pcall('PUBLISH', 'lockd:host:' .. holder, notice .. nonce .. ' ' .. resource) end
end
return 1
