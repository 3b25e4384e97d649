
if redis.call('get', KEYS[1]) ~= ARGV[1] or redis.call('pttl', KEYS[1]) < 0 then
    return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
