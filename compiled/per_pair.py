"""CPU of one agent per pair without its sockets: real Agent, real sessions and links, faked transports. Min over chunks."""
import sys, os, asyncio, time, socket, tempfile, threading
sys.path.insert(0, os.getcwd())
import hiredis, uvloop
from pathlib import Path
from lockd.config.model import Config
from lockd.server.agent import Agent
from lockd.server.log import EventLog
from lockd.server.session import Session
from tests.harness.modelled import modelled_masters, ModelledMaster
import lockd
assert lockd.__file__.startswith(os.getcwd()) or os.environ.get("ANY"), lockd.__file__

class Out:
    def __init__(self): self.data=[]; self.sock=None
    def write(self,d): self.data.append(d)
    def get_extra_info(self,_): return self.sock
    def set_write_buffer_limits(self,high=0): pass
    def get_write_buffer_size(self): return 0
    def pause_reading(self): pass
    def resume_reading(self): pass
    def abort(self): pass
    def close(self): pass
    def take(self):
        d,self.data=b"".join(self.data),[]
        return d

async def main(clients, chunks, per):
    folder=tempfile.mkdtemp(dir="/dev/shm")
    masters=modelled_masters(5)
    names=[]
    servers=[]
    ready=threading.Event()
    def serve():
        loop=asyncio.new_event_loop()
        for m in masters: servers.append(loop.run_until_complete(m.serve()))
        ready.set(); loop.run_forever()
    threading.Thread(target=serve,daemon=True).start(); ready.wait()
    cfg=dict(cluster="test",masters=[dict(name=m.name,address=m.address) for m in masters],socket=dict(path=folder+"/a.sock"),canary_ms=0,log_level="warning",metrics=None)
    config=Config.model_validate(cfg)
    agent=Agent(config, EventLog("lockd","error"))
    loop=asyncio.get_running_loop()
    run=loop.create_task(agent.run())
    for _ in range(200):
        await asyncio.sleep(0.05)
        if agent.fleet.voting().bit_count()==5 and agent._server is not None: break
    else: raise SystemExit("not up")
    fleet=agent.fleet
    while any(l._in_flight or l.out for l in fleet.links) or fleet._flushes: await asyncio.sleep(0.001)
    outs=[]
    for link in fleet.links:
        o=Out(); o.real=link._transport; link._transport=o; outs.append(o)
        pass
        link._reader=hiredis.Reader(notEnoughData=link._reader.gets() if False else __import__("lockd.masters.framing",fromlist=["UNFINISHED"]).UNFINISHED)
    fleet._flushes=True; agent.shared.crowd._most=1<<60; agent.shared.crowd._gathers=1<<59
    sessions=[]
    for i in range(clients):
        a,b=socket.socketpair(); t=Out(); t.sock=a; t.other=b
        s=Session(agent.shared, agent._commands); s.connection_made(t); sessions.append((s,t))
    tt=time.thread_time_ns
    best=[]
    parts={"lock":0,"flush":0,"hear":0,"unlock":0}
    def pack(*w): return hiredis.pack_command(w)
    locks=[pack(b"LOCK",b"bench:free:%d"%i,b"10000") for i in range(clients)]
    def answers():
        us=time.time_ns()//1000
        res=[]
        for o in outs:
            r=hiredis.Reader(); r.feed(o.take()); out=[]
            while (w:=r.gets()) is not False:
                if len(w)>6: out.append(b"*3\r\n:1\r\n:%d\r\n:%d\r\n"%(int(w[9]),us))
                else: out.append(b":1\r\n")
            res.append(b"".join(out))
        return res
    import cProfile
    prof=cProfile.Profile() if os.environ.get("PROF") else None
    if prof: prof.enable()
    for c in range(chunks):
        p={"lock":0,"flush":0,"hear":0,"unlock":0}
        for _ in range(per//clients):
            t0=tt()
            for (s,t),d in zip(sessions,locks): s.data_received(d)
            t1=tt(); fleet._flush(); fleet._flushes=True; t2=tt()
            p["lock"]+=t1-t0; p["flush"]+=t2-t1
            if os.environ.get("DBG"): print([o.data for o in outs][0][:1], [s.flow.places for s,t in sessions][:2], [t.data for s,t in sessions][:2]); os.environ.pop("DBG")
            a=answers(); t0=tt()
            for l,d in zip(fleet.links,a): l.data_received(d)
            p["hear"]+=tt()-t0
            us=[]
            for (s,t),i in zip(sessions,range(clients)):
                r=hiredis.Reader(); r.feed(t.take()); rep=r.gets()
                us.append(pack(b"UNLOCK",b"bench:free:%d"%i,rep[1]))
            t0=tt()
            for (s,t),d in zip(sessions,us): s.data_received(d)
            t1=tt(); fleet._flush(); fleet._flushes=True; t2=tt()
            p["unlock"]+=t1-t0; p["flush"]+=t2-t1
            if os.environ.get("DBG"): print([o.data for o in outs][0][:1], [s.flow.places for s,t in sessions][:2], [t.data for s,t in sessions][:2]); os.environ.pop("DBG")
            a=answers(); t0=tt()
            for l,d in zip(fleet.links,a): l.data_received(d)
            p["hear"]+=tt()-t0
            for s,t in sessions:
                assert t.take()==b":1\r\n"
        n=per//clients*clients
        best.append(p); 
        if hasattr(agent,"journal"): agent.journal.look_after()
    if prof:
        prof.disable(); prof.dump_stats(os.environ["PROF"]); open(os.environ["PROF"]+".pairs","w").write(str(per//clients*clients*chunks))
    n=per//clients*clients
    m={k:min(b[k] for b in best)/n/1e3 for k in parts}
    print(f"total {sum(m.values()):6.2f} us/pair (min of whole chunks {min(sum(b.values()) for b in best)/n/1e3:6.2f})  "+"  ".join(f"{k} {v:.2f}" for k,v in m.items()), flush=True)
    os._exit(0)
uvloop.run(main(16,int(sys.argv[1]) if len(sys.argv)>1 else 40, 640))
