-- One page of the leases on this master, for operators (LOCKS). Reads only.
--
-- KEYS  none: SCAN names its own     ARGV  1 cursor  2 glob of the lease keys  3 about how many
-- Returns {next cursor, {key, lease, pttl_ms, key, lease, pttl_ms, ...}}

local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local found = {}
for _, key in ipairs(page[2]) do
  local lease = redis.call('GET', key)
  if lease then
    found[#found + 1] = key
    found[#found + 1] = lease
    found[#found + 1] = redis.call('PTTL', key)
  end
end
return {page[1], found}
