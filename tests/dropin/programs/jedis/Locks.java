// Jedis with the commands of Tair, raw: SET NX EX, CAS to extend, CAD to release.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.json.JSONObject;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

public class Locks {
  private static final ProtocolCommand CAS = () -> "CAS".getBytes();
  private static final ProtocolCommand CAD = () -> "CAD".getBytes();

  private final Map<String, String> tokens = new HashMap<>();
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

  /** As a pool does: one that is broken is not used again. */
  private Jedis connected() {
    if (jedis == null || jedis.isBroken()) {
      jedis = new Jedis(sockets);
    }
    return jedis;
  }

  private boolean acquire(JSONObject said) throws InterruptedException {
    String name = said.getString("name");
    String token = UUID.randomUUID().toString();
    SetParams params = SetParams.setParams().nx();
    if (!said.isNull("ttl_ms")) {
      params.ex(said.getLong("ttl_ms") / 1000);
    }
    for (long end = System.nanoTime() + said.optLong("wait_ms") * 1_000_000; ; Thread.sleep(50)) {
      boolean got = "OK".equals(connected().set(name, token, params));
      if (got) {
        tokens.put(name, token);
      }
      if (got || System.nanoTime() >= end) {
        return got;
      }
    }
  }

  private boolean told(ProtocolCommand command, String... words) {
    return Long.valueOf(1).equals(connected().sendCommand(command, words));
  }

  private Object run(JSONObject said) throws InterruptedException {
    String name = said.getString("name");
    String token = tokens.getOrDefault(name, "");
    switch (said.getString("do")) {
      case "acquire": return acquire(said);
      case "release": return told(CAD, name, token);
      case "release_as": return told(CAD, name, said.getString("token"));
      case "extend": return told(CAS, name, token, token, "EX", String.valueOf(said.getLong("ttl_ms") / 1000));
      case "locked": return connected().exists(name);
      case "owned": return token.equals(connected().get(name));
      case "token": return token;
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
