-- Write a master's identity, or a part of it: when a cluster is formed, a master admitted, or a list of members brought
-- up to date (rule 8).
--
-- KEYS  1 this master's identity (hash)   2 the fence counters (hash)
-- ARGV  1 what it has to show now: its electorate; 'old' for an identity of an earlier format, '' for an empty data set
--       2 how many words of identity follow   then field, value ...   then slot, counter ...: none is lowered by it
-- Returns 1 written, 0 it shows something else: nothing was changed.

local call = redis.call
local current = call('HGET', KEYS[1], 'electorate')
if not current then
  if call('DBSIZE') == 0 then
    current = ''
  elseif call('HGET', KEYS[1], 'cluster') then
    current = 'old'
  end
end
if current ~= ARGV[1] then return 0 end

local last = 2 + ARGV[2]
for i = last + 1, #ARGV, 2 do
  local counter = tonumber(call('HGET', KEYS[2], ARGV[i]) or '-1')
  if counter and counter < tonumber(ARGV[i + 1]) then call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
end
for i = 3, last, 2 do
  call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 1
