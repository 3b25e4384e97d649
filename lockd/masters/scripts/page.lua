-- One page of the leases on this master, for operators (LOCKS). Reads only.
--
-- KEYS  none: SCAN names its own     ARGV  1 cursor  2 glob of the lease keys  3 about how many
-- Returns {next cursor, {key, lease, pttl_ms, key, lease, pttl_ms, ...}}; '' for a lease of another type, or longer than any.
-- Names longer than any are left out.

local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local found = {}
for _, key in ipairs(page[2]) do
  local lease = redis.pcall('GET', key)
  if type(lease) == 'table' or (lease and #lease > 4096) then lease = '' end
  if lease and #key <= 4096 then
    found[#found + 1] = key
    found[#found + 1] = lease
    found[#found + 1] = redis.call('PTTL', key)
  end
end
return {page[1], found}
