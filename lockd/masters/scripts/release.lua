-- Give a lease back on one master (rule 3). Safe to send twice, and to send for a lease that was never granted here.
--
-- KEYS  1 the lease
-- ARGV  1 nonce of the try that it came from; with "app" behind it, the token that its app has (rule 4); with "pass", the
--         place for which it is reserved ("HOST AGENT", see acquire.lua): its turn has come, and it wants nothing
--       2 "app"; "pass"; "try": it is of a try that failed; "forced"; or ... nonces that it had before an agent took it
--         over from another (rule 13)
-- Returns {1 deleted, 0 not there or not ours}
-- What is deleted goes to whoever waits for the longest: the resource is reserved for its grace, it is told so, and the
-- one behind it when that ends. Not by a try that failed: somebody else has it, or nobody has, and they try anyway.

local call = redis.call
local lease = call('GET', KEYS[1])
if not lease then return 0 end
local how = ARGV[2]
local word = string.sub(lease, 1, 32)
if how == 'app' then
  word = string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ =(.*)$')
    or string.match(lease, '^%S+ %d+ %d+ %S+ %d+ %d+ p%d+ =(.*)$') or word
elseif how == 'pass' then
  word = string.match(lease, '^reserved (.*)$')
end
local one = how == 'app' or how == 'pass' or how == 'try' or how == 'forced'
local mine = false
for i = 1, one and 1 or #ARGV do mine = mine or word == ARGV[i] end
if not mine then return 0 end
if how == 'try' then return call('DEL', KEYS[1]) end

local resource = string.sub(KEYS[1], 13)
local places = 'lockd:places:' .. resource
local flat = call('HGETALL', places)
local now = #flat > 0 and call('TIME') or {0, 0}
local now_us = now[1] * 1000000 + now[2]
local first, second
for i = 1, #flat, 2 do
  local host, agent = string.match(flat[i], '^(%S+) (%S+)$')
  local began, ends, grace = string.match(flat[i + 1], '^(%d+) (%d+) (%d+)$')
  if host and ends and tonumber(ends) > now_us and tonumber(ends) <= now_us + 4000000 then
    local one_there = {began_us = tonumber(began), place = flat[i], host = host, agent = agent, grace_ms = tonumber(grace)}
    local function is_before(other)
      if not other then return true end
      if one_there.began_us ~= other.began_us then return one_there.began_us < other.began_us end
      return one_there.place < other.place
    end
    if is_before(first) then
      first, second = one_there, first
    elseif is_before(second) then
      second = one_there
    end
  end
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
if how == 'forced' then
  local holder = string.match(lease, '^%S+ %d+ %d+ (%S+) ')
  if holder then redis.pcall('PUBLISH', 'lockd:host:' .. holder, 'gone ' .. word .. ' ' .. resource) end
end
return 1
