// redigo, as articles of Go have it: scripts by NewScript, which sends EVALSHA first, and EVAL when that is unknown.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

var (
	take    = redis.NewScript(1, `return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	release = redis.NewScript(1, `
		if redis.call("GET", KEYS[1]) == ARGV[1] then
			return redis.call("DEL", KEYS[1])
		else
			return 0
		end`)
	extend = redis.NewScript(1, `
		if redis.call("GET", KEYS[1]) == ARGV[1] then
			return redis.call("PEXPIRE", KEYS[1], ARGV[2])
		else
			return 0
		end`)
	pool   = &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.Dial("unix", os.Args[1]) }}
	tokens = map[string]string{}
)

type order struct {
	Do     string `json:"do"`
	Name   string `json:"name"`
	Token  string `json:"token"`
	TTLMs  int    `json:"ttl_ms"`
	WaitMs int    `json:"wait_ms"`
}

func try(conn redis.Conn, name string, ttlMs int) (bool, error) {
	bytes := make([]byte, 16)
	rand.Read(bytes)
	token := hex.EncodeToString(bytes)
	reply, err := redis.String(take.Do(conn, name, token, ttlMs))
	if err == redis.ErrNil {
		return false, nil
	}
	if err == nil {
		tokens[name] = token
	}
	return reply == "OK", err
}

func acquire(conn redis.Conn, said order) (bool, error) {
	end := time.Now().Add(time.Duration(said.WaitMs) * time.Millisecond)
	for {
		got, err := try(conn, said.Name, said.TTLMs)
		if got || err != nil || time.Now().After(end) {
			return got, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func run(conn redis.Conn, said order) (interface{}, error) {
	switch said.Do {
	case "acquire":
		return acquire(conn, said)
	case "release":
		return redis.Bool(release.Do(conn, said.Name, tokens[said.Name]))
	case "release_as":
		return redis.Bool(release.Do(conn, said.Name, said.Token))
	case "extend":
		return redis.Bool(extend.Do(conn, said.Name, tokens[said.Name], said.TTLMs))
	case "locked":
		return redis.Bool(conn.Do("EXISTS", said.Name))
	case "token":
		return tokens[said.Name], nil
	}
	return nil, fmt.Errorf("no %s here", said.Do)
}

func answer(line []byte) map[string]interface{} {
	var said order
	if err := json.Unmarshal(line, &said); err != nil {
		return map[string]interface{}{"error": err.Error()}
	}
	conn := pool.Get()
	defer conn.Close()
	done, err := run(conn, said)
	if err != nil {
		return map[string]interface{}{"error": err.Error()}
	}
	return map[string]interface{}{"ok": done}
}

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text, _ := json.Marshal(answer(lines.Bytes()))
		fmt.Println(string(text))
	}
}
