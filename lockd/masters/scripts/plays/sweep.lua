-- One page of what an app host may have left on a master before it was shut out. By revoke_agent.yml, as lockd_admin and
-- with EVAL: no master loads it.
--
-- KEYS  1 this master's identity (hash)   2 the fence counters (hash)     ARGV  1 cursor
-- Returns {next cursor, leases that end sooner now, lines and fields that were dropped, counters that are wrong}
-- Whatever has a lease's name ends within the largest max TTL: what is no lease may have been put over one on which its
-- holder still relies, until then and no longer (rule 9). Places end within 4 s, and no safety rests on them. A counter
-- that is wrong is left as it is: nobody knows its right value, so the master has to be wiped and admitted (rule 6).

local call = redis.call
local ttls = call('HMGET', KEYS[1], 'max_ttl_ms', 'was_max_ttl_ms')
local longest_ms = math.max(tonumber(ttls[1] or 0), tonumber(ttls[2] or 0))
local sooner, dropped, wrong = 0, 0, 0
if longest_ms == 0 then return {'0', 0, 0, 0} end

local function sweep_counters()
  if call('TYPE', KEYS[2]).ok ~= 'hash' then
    if call('EXISTS', KEYS[2]) == 1 then wrong = 4096 end
    return
  end
  local names, now = {'copied'}, call('TIME')
  local most = math.min(2 ^ 52, now[1] * 1000000 + 86400000000)
  for slot = 0, 4095 do names[slot + 2] = slot end
  local counters, kept = call('HMGET', KEYS[2], unpack(names)), 0
  for i, counter in ipairs(counters) do
    if counter then kept = kept + 1 end
    if i > 1 and counter and not (string.find(counter, '^%d+$') and tonumber(counter) < most) then wrong = wrong + 1 end
  end
  dropped = call('HLEN', KEYS[2]) - kept
  if dropped == 0 then return end
  call('UNLINK', KEYS[2])
  for i, counter in ipairs(counters) do
    if counter then call('HSET', KEYS[2], names[i], counter) end
  end
end

if ARGV[1] == '0' then sweep_counters() end
local page = call('SCAN', ARGV[1], 'MATCH', 'lockd:*', 'COUNT', 200)
for _, key in ipairs(page[2]) do
  local is_lease, lasts_ms = string.sub(key, 1, 12) == 'lockd:lease:', call('PTTL', key)
  if is_lease and (lasts_ms < 0 or lasts_ms > longest_ms) then
    sooner = sooner + call('PEXPIRE', key, longest_ms)
  elseif string.sub(key, 1, 13) == 'lockd:places:' and (lasts_ms < 0 or lasts_ms > 4000) then
    dropped = dropped + call('UNLINK', key)
  end
end
return {page[1], sooner, dropped, wrong}
