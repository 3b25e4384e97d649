
    -- KEYS[1] = lock key
    -- ARGV[1] = owner token
    -- ARGV[2] = TTL in seconds
    -- returns 1 = acquired, 2 = refreshed, 0 = taken by another owner
    local value = redis.call('GET', KEYS[1])
    if not value then
        redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
        return 1
    elseif value == ARGV[1] then
        redis.call('EXPIRE', KEYS[1], ARGV[2])
        return 2
    end
    return 0
