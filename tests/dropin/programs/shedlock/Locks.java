// ShedLock's JedisLockProvider: SET NX PX, and SET XX PX to extend and for lockAtLeastFor.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import org.json.JSONObject;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.exceptions.JedisConnectionException;

public class Locks {
  private final Map<String, SimpleLock> held = new HashMap<>();
  private final JedisSocketFactory sockets;
  private Jedis jedis;

  Locks(String path) {
    sockets = () -> {
      try {
        return AFUNIXSocket.connectTo(AFUNIXSocketAddress.of(new File(path)));
      } catch (java.io.IOException error) {
        throw new JedisConnectionException(error);
      }
    };
  }

  private boolean has(String name, Optional<SimpleLock> lock) {
    lock.ifPresent(one -> held.put(name, one));
    return lock.isPresent();
  }

  private Object run(JSONObject said) {
    String name = said.getString("name");
    Duration most = Duration.ofMillis(said.optLong("ttl_ms"));
    Duration least = Duration.ofMillis(said.optLong("at_least_ms"));
    switch (said.getString("do")) {
      case "acquire":
        if (jedis == null || jedis.isBroken()) {
          jedis = new Jedis(sockets);
        }
        LockConfiguration wanted = new LockConfiguration(Instant.now(), name, most, least);
        return has(name, new JedisLockProvider(jedis, "tests").lock(wanted));
      case "extend": return has(name, held.remove(name).extend(most, least));
      case "release": held.get(name).unlock(); return null;
      default: throw new IllegalArgumentException(said.getString("do"));
    }
  }

  public static void main(String[] arguments) throws Exception {
    Locks locks = new Locks(arguments[0]);
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      JSONObject answer = new JSONObject();
      try {
        answer.put("ok", locks.run(new JSONObject(line)));
      } catch (RuntimeException error) {
        answer.put("error", error.toString());
      }
      System.out.println(answer);
    }
  }
}
