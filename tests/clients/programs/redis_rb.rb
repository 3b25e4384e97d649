# redis-rb: it lets one thread at a time use a connection, so each command takes one from a pool.
require "redis"
$stdout.sync = true

class Pool
  def initialize(timeout_ms)
    @options = { path: ARGV[0], timeout: timeout_ms.to_i / 1000.0, reconnect_attempts: 0 }
    @idle = Queue.new
  end

  def with
    redis = @idle.empty? ? Redis.new(**@options) : @idle.pop
    yield redis
  ensure
    @idle << redis
  end

  def drop
    @idle.pop.close until @idle.empty?
  end
end

def flat(value)
  value.is_a?(Array) ? value.map { |one| flat(one) }.join(" ") : value.nil? ? "nil" : value.to_s
end

def run(clients, verb, name, *words)
  case verb
  when "open" then clients[name] = Pool.new(*words) and "OK"
  when "drop" then clients[name].drop and nil
  when "multi" then clients[name].with { |redis| redis.multi { |transaction| transaction.call(words) } }
  when "pipe" then clients[name].with { |redis| redis.pipelined { |pipe| pipe.echo("a"); pipe.call(words); pipe.echo("b") } }
  else clients[name].with { |redis| redis.call(words) }
  end
end

clients = {}
$stdin.each_line do |line|
  Thread.new(line.split) do |tag, *words|
    $stdout.write("#{tag} + #{flat(run(clients, *words))}\n")
  rescue Redis::BaseError => error
    $stdout.write("#{tag} - #{error.message}\n")
  end
end
