// redigo: a pool, and a goroutine for each command.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

var clients sync.Map

func opened(timeoutMs string) *redis.Pool {
	ms, _ := strconv.Atoi(timeoutMs)
	timeout := redis.DialReadTimeout(time.Duration(ms) * time.Millisecond)
	return &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.Dial("unix", os.Args[1], timeout) }}
}

func flat(value interface{}) string {
	switch value := value.(type) {
	case []interface{}:
		words := []string{}
		for _, one := range value {
			words = append(words, flat(one))
		}
		return strings.Join(words, " ")
	case []byte:
		return string(value)
	case nil:
		return "nil"
	}
	return fmt.Sprint(value)
}

func piped(conn redis.Conn, commands ...[]interface{}) (interface{}, error) {
	replies := []interface{}{}
	for _, words := range commands {
		conn.Send(words[0].(string), words[1:]...)
	}
	conn.Flush()
	for range commands {
		reply, err := conn.Receive()
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

func run(verb, name string, words ...interface{}) (interface{}, error) {
	if verb == "open" {
		clients.Store(name, opened(words[0].(string)))
		return "OK", nil
	}
	pool, _ := clients.Load(name)
	if verb == "drop" { // what is idle for longer than a nanosecond is closed
		pool.(*redis.Pool).IdleTimeout = 1
		defer func() { pool.(*redis.Pool).IdleTimeout = 0 }()
		words = []interface{}{"PING"}
	}
	conn := pool.(*redis.Pool).Get()
	defer conn.Close()
		switch verb {
	case "multi":
		return piped(conn, []interface{}{"MULTI"}, words, []interface{}{"EXEC"})
	case "pipe":
		return piped(conn, []interface{}{"ECHO", "a"}, words, []interface{}{"ECHO", "b"})
	}
	return conn.Do(words[0].(string), words[1:]...)
}

func answer(line string) {
	words := []interface{}{}
	for _, word := range strings.Fields(line) {
		words = append(words, word)
	}
	reply, err := run(words[1].(string), words[2].(string), words[3:]...)
	if err != nil {
		fmt.Println(words[0], "-", err)
		return
	}
	fmt.Println(words[0], "+", flat(reply))
}

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		go answer(lines.Text())
	}
}
