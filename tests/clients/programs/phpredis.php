<?php
// phpredis: PHP runs one command at a time.
$clients = [];

function flat($value) {
    return is_array($value) ? implode(' ', array_map('flat', $value)) : ($value === null ? 'nil' : (string) $value);
}

function opened($timeout_ms) {
    global $argv;
    $redis = new Redis();
    $redis->connect($argv[1], 0, 1, null, 0, $timeout_ms / 1000);
    $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
    return $redis;
}

// `ERR` is no exception to it.
function proved($redis, $reply) {
    if ($reply === false) throw new RedisException($redis->getLastError() ?? 'refused');
    return $reply;
}

// What is refused in it is false, and ends no MULTI.
function transacted($redis, $words) {
    $redis->multi();
    if ($redis->rawCommand(...$words) === false) {
        $why = $redis->getLastError() ?? 'refused';
        $redis->discard();
        throw new RedisException($why);
    }
    return $redis->exec();
}

function run($verb, $name, ...$words) {
    global $clients;
    if ($verb == 'open') {
        $clients[$name] = [opened($words[0]), $words[0]];
        return 'OK';
    }
    [$redis, $timeout_ms] = $clients[$name];
    if ($verb == 'drop') {
        $redis->close();
        $clients[$name] = [opened($timeout_ms), $timeout_ms];
        return 'OK';
    }
    if ($verb == 'multi') return transacted($redis, $words);
    if ($verb == 'pipe') return $redis->pipeline()->echo('a')->rawCommand(...$words)->echo('b')->exec();
    return proved($redis, $redis->rawCommand(...$words));
}

while (($line = fgets(STDIN)) !== false) {
    [$tag, $verb, $name] = $words = explode(' ', trim($line));
    try {
        $said = '+ ' . flat(run(...array_slice($words, 1)));
    } catch (RedisException $error) {
        $said = '- ' . $error->getMessage();
        // Not lockd's: after a time-out the next command would read the reply of this one.
        if (!preg_match('/^[A-Z]+ /', $error->getMessage())) run('drop', $name);
    }
    echo "$tag $said\n";
}
