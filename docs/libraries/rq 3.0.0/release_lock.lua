
    -- KEYS[1] = lock key
    -- ARGV[1] = owner token
    -- returns 1 = deleted, 0 = not owned (absent or taken by another owner, left untouched)
    if redis.call('GET', KEYS[1]) == ARGV[1] then
        return redis.call('DEL', KEYS[1])
    end
    return 0
