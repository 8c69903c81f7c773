// Barriers: warps, bar, mbarrier, clusters; grids and register counts.
#include "machine.h"

namespace host {

// --- warps

void sync_warp(unsigned mask) {
    static const char key = 0;
    if (mask != ALL_LANES) fault("a mask that is not the whole warp");
    meet(&key, "__syncwarp", nullptr, [](Warp& w) {
        Clock all;
        for (Thread* t : w.lanes) release(*t, all);
        for (Thread* t : w.lanes) acquire(*t, all);
    });
}

struct Exchange {
    u64 value;
    int lane, width;
    u64 result;
};

unsigned long long exchange(int kind, unsigned mask, unsigned long long value, int lane, int width) {
    static const char keys[7] = {};
    static const char* const names[7] = {"shfl", "shfl.bfly", "shfl.up", "shfl.down", "vote.any", "vote.all", "vote.ballot"};
    if (mask != ALL_LANES) fault("a mask that is not the whole warp");
    if (width != 32) fault("a shuffle of a part of the warp");
    Exchange mine{value, lane, width, 0};
    meet(&keys[kind], names[kind], &mine, [kind](Warp& w) {
        u64 any = 0, all = 1, ballot = 0;
        for (int n = 0; n < 32; ++n) {
            const u64 v = ((Exchange*)w.data[n])->value;
            any |= v, all &= v, ballot |= v << n;
        }
        for (int n = 0; n < 32; ++n) {
            auto& e = *(Exchange*)w.data[n];
            int from = kind == 0 ? e.lane & 31 : kind == 1 ? n ^ e.lane : kind == 2 ? n - e.lane : n + e.lane;
            if (from < 0 || from > 31) from = n;
            e.result = kind < 4 ? ((Exchange*)w.data[from])->value : kind == 4 ? any : kind == 5 ? all : ballot;
        }
    });
    return mine.result;
}

// --- bar

static void named(u32 id, u32 count, bool wait) {
    Thread& t = self();
    Block& b = *t.block;
    if (id > 15) fault("barrier %u does not exist", id);
    if (count == 0 || count % 32 || count > b.threads) fault("barrier %u with %u threads", id, count);
    NamedBarrier& bar = b.named[id];
    if (bar.arrived == 0) bar.count = count;
    if (bar.count != count) fault("barrier %u with %u threads, others said %u", id, count, bar.count);
    for (const Thread* other : bar.waiting)
        if (other == &t) fault("barrier %u twice", id);
    release(t, bar.clock);
    ++bar.arrived;
    if (bar.arrived < count) {
        if (!wait) return pause_sometimes();
        bar.waiting.push_back(&t);
        return suspend("barrier " + std::to_string(id) + " of " + std::to_string(count) + " threads");
    }
    vector<Thread*> waiting;
    waiting.swap(bar.waiting);
    const Clock clock = bar.clock;
    bar.arrived = 0;
    bar.clock = Clock();
    for (Thread* other : waiting) acquire(*other, clock), wake(other);
    if (wait) acquire(t, clock);
    pause_sometimes();
}

// Warps arrive as a whole.
void sync_threads() {
    static const char key = 0;
    meet(&key, "__syncthreads", nullptr, [](Warp&) {});
    named(0, self().block->threads, true);
}

static void bar(Frame& f, const Instruction& i) {
    meet(f.site, i.name, nullptr, [](Warp&) {});
    named((u32)f.get(i.args[0]), (u32)f.get(i.args[1]), i.name == "bar.sync");
}

// --- mbarrier

Mbarrier& barrier_at(Place p, const char* what) {
    if ((p.block->base + p.offset) % 8) fault("%s: an mbarrier at a misaligned address", what);
    const auto found = p.block->barriers.find(p.offset);
    if (found == p.block->barriers.end()) fault("%s: no mbarrier was initialised at byte %u", what, p.offset);
    return found->second;
}

static void init(Frame& f, const Instruction& i) {
    const u32 address = (u32)f.get(i.args[0]), count = (u32)f.get(i.args[1]);
    const Place p = resolve(address, 8, "mbarrier.init");
    if (p.block != f.thread->block) fault("mbarrier.init in another block");
    if (address % 8) fault("an mbarrier at a misaligned address");
    if (count == 0 || count >= 1u << 20) fault("an mbarrier of %u arrivals", count);
    for (const auto& [where, other] : p.block->barriers)
        if (where + 8 > p.offset && p.offset + 8 > where) fault("two mbarriers at byte %u", p.offset);
    write_shared(*p.block, p.offset, 8, f.thread->clock, Proxy::GENERIC, f.thread->now(), "mbarrier.init");
    Mbarrier& b = p.block->barriers[p.offset];
    b.expected = count;
    b.pending = count;
    b.component = new_component(*p.block->cluster);
    b.initialiser = f.thread->now();
}

static void use(const Mbarrier& b, const Thread& t, const char* what) {
    if (b.initialiser >> TIME_BITS != t.component && !t.clock.knows(b.initialiser))
        fault("%s: no order after the mbarrier's initialisation", what);
}

static void fence_init(Frame& f, const Instruction&) {
    for (auto& [where, b] : f.thread->block->barriers)
        if (b.initialiser >> TIME_BITS == f.thread->component) b.fenced = true;
}

static void advance(Mbarrier& b, Block& where) {
    if (b.pending != 0 || b.bytes != 0) return;
    ++b.phase;
    b.pending = b.expected;
    b.completed.join(b.arriving);
    auto set = [&](vector<u32>& v) {
        if (v.size() <= b.component) v.resize(b.component + 1);
        v[b.component] = b.phase;
    };
    set(b.completed.seen), set(b.completed.proxied);
    const string name = "mbarrier at byte ";
    for (Block& block : where.cluster->blocks)
        for (Thread* t : block.members)
            if (t->state == State::BLOCKED && t->waits.compare(0, name.size(), name) == 0) wake(t);
}

void arrive(Mbarrier& b, Block& where, u32 count, const char* what) {
    release(self(), b.arriving);
    b.pending -= count;
    if (b.pending < 0) fault("%s: more arrivals than the mbarrier's %u", what, b.expected);
    advance(b, where);
}

void complete_bytes(Block& where, u32 offset, u32 bytes) {
    Mbarrier& b = where.barriers.at(offset);
    b.bytes -= bytes;
    if (b.bytes < -(1 << 20)) fault("an mbarrier received more bytes than it can count");
    if (b.pending == 0 && b.bytes < 0) fault("the mbarrier at byte %u received more bytes than were announced", offset);
    advance(b, where);
}

static void arrive_once(Frame& f, const Instruction& i) {
    const bool remote = i.name.find("shared::cluster") != string::npos;
    const u32 address = (u32)f.get(i.args[1]);
    if (i.args[0].kind != Argument::SINK) fault("mbarrier.arrive with a result");
    if (!remote && address >= WINDOW) fault("mbarrier.arrive of shared::cta in another block");
    const Place p = resolve(address, 8, "mbarrier.arrive");
    Mbarrier& b = barrier_at(p, "mbarrier.arrive");
    use(b, *f.thread, "mbarrier.arrive");
    if (p.block != f.thread->block && !b.fenced) fault("mbarrier.arrive in another block without fence.mbarrier_init");
    arrive(b, *p.block, 1, "mbarrier.arrive");
    pause_sometimes();
}

static void expect(Frame& f, const Instruction& i) {
    const Place p = resolve((u32)f.get(i.args[1]), 8, "mbarrier.arrive.expect_tx");
    Mbarrier& b = barrier_at(p, "mbarrier.arrive.expect_tx");
    use(b, *f.thread, "mbarrier.arrive.expect_tx");
    const u32 bytes = (u32)f.get(i.args[2]);
    if (bytes >= 1u << 20) fault("%u bytes are more than an mbarrier can count", bytes);
    b.bytes += bytes;
    arrive(b, *p.block, 1, "mbarrier.arrive.expect_tx");
    pause_sometimes();
}

// May say no although the phase has completed, as the instruction may.
static void try_wait(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    pause_sometimes();
    const Place p = resolve((u32)f.get(i.args[1]), 8, "mbarrier.try_wait");
    Mbarrier& b = barrier_at(p, "mbarrier.try_wait");
    use(b, t, "mbarrier.try_wait");
    const u32 parity = (u32)f.get(i.args[2]);
    if (parity > 1) fault("a parity of %u", parity);
    if ((b.phase & 1) == parity) {
        suspend("mbarrier at byte " + std::to_string(p.offset) + ", phase " + std::to_string(b.phase) + ": " +
                std::to_string(b.pending) + " arrivals and " + std::to_string(b.bytes) + " bytes missing when the wait began");
        f.set(i.args[0], 0);
        return;
    }
    if (gpu.policy >= 2 && gpu.draw(16) == 0) {
        f.set(i.args[0], 0);
        return pause_sometimes();
    }
    acquire(t, b.completed);
    f.set(i.args[0], 1);
}

// --- proxies

static void fence_proxy(Frame& f, const Instruction&) {
    Thread& t = *f.thread;
    t.clock.proxied = t.clock.seen;
    ++t.clock.seen[t.component];
}

// --- clusters

static void cluster_arrive(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    Cluster& c = *t.block->cluster;
    if (t.cluster_arrived) fault("barrier.cluster.arrive twice");
    t.cluster_arrived = true;
    t.cluster_generation = c.generation;
    if (i.name == "barrier.cluster.arrive") release(t, c.arriving);
    else if (i.name != "barrier.cluster.arrive.relaxed") fault("%s is not known", i.name.c_str());
    if (++c.arrived < c.size * t.block->threads) return pause_sometimes();
    c.released = c.arriving;
    c.arrived = 0;
    ++c.generation;
    vector<Thread*> waiting;
    waiting.swap(c.waiting);
    for (Thread* other : waiting) wake(other);
}

static void cluster_wait(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    Cluster& c = *t.block->cluster;
    if (i.name != "barrier.cluster.wait") fault("%s is not known", i.name.c_str());
    if (!t.cluster_arrived) fault("barrier.cluster.wait without an arrival");
    if (c.generation == t.cluster_generation) {
        c.waiting.push_back(&t);
        suspend("the barrier of the cluster");
    }
    t.cluster_arrived = false;
    acquire(t, c.released);
    pause_sometimes();
}

static void mapa(Frame& f, const Instruction& i) {
    const u32 rank = (u32)f.get(i.args[2]);
    Block& own = *f.thread->block;
    if (rank >= own.cluster->size) fault("mapa: no block %u in the cluster", rank);
    Block& there = own.cluster->blocks[rank];
    if (i.name == "mapa.shared::cluster.u32") {
        const u32 address = (u32)f.get(i.args[1]);
        if (address >= WINDOW) fault("mapa of an address of another block");
        return f.set(i.args[0], address | (rank + 1) << 24);
    }
    const u8* here = (const u8*)f.get(i.args[1]);
    if (here < own.memory || here >= own.memory + own.size) fault("mapa of an address outside of shared memory");
    f.set(i.args[0], (u64)(there.memory + (here - own.memory)));
}

// --- grids, registers

static void grid_wait(Frame& f, const Instruction&) {
    f.thread->grid_waited = true;
    pause_sometimes();
}
static void grid_launch(Frame&, const Instruction&) { pause_sometimes(); }

// Grants what fits, in the order of the requests.
static void grant_registers(Block& b) {
    for (size_t n = 0; n < b.requests.size();) {
        const RegisterRequest r = b.requests[n];
        const long long change = (long long)r.count - b.warp_registers[r.warp];
        if (change * 32 > b.free_registers) {
            ++n;
            continue;
        }
        b.free_registers -= change * 32;
        b.warp_registers[r.warp] = r.count;
        b.requests.erase(b.requests.begin() + (long)n);
        n = 0;  // what was freed may be enough for an earlier request
        for (bool* granted : r.granted) *granted = true;
        for (Thread* t : b.warps[r.warp].lanes) wake(t);
    }
}

static void set_registers(Frame& f, const Instruction& i) {
    const u32 count = (u32)f.get(i.args[0]);
    const bool more = i.parts[1] == "inc";
    if (count < 24 || count > 256 || count % 8) fault("setmaxnreg of %u", count);
    bool granted = false;
    meet(f.site, i.name, &granted, [&](Warp& w) {
        Block& b = *f.thread->block;
        const u32 warp = f.thread->id / 32, now = b.warp_registers[warp];
        if (more ? count < now : count > now) fault("%s from %u to %u registers", i.name.c_str(), now, count);
        b.requests.push_back({warp, count, {}});
        for (void* p : w.data) b.requests.back().granted.push_back((bool*)p);
        grant_registers(b);
    });
    while (!granted) suspend("setmaxnreg of " + std::to_string(count) + ": no free registers");
}

void finish_block(Block& b) {
    for (const Thread* t : b.members)
        if (!t->stores.copies.empty()) fault("a block ends while a TMA store may read its shared memory");
    for (const auto& [where, barrier] : b.barriers)
        if (barrier.bytes != 0) fault("a block ends while the mbarrier at byte %u misses %lld bytes", where, barrier.bytes);
    for (Warp& w : b.warps)
        if (!w.pending.empty()) fault("a block ends while MMAs are in flight");
    for (u32 n = 0; n + 3 < b.warps.size(); n += 4)
        for (u32 other = 1; other < 4; ++other)
            if (b.warps[n + other].trace != b.warps[n].trace) fault("the warps of a warpgroup issued different MMAs");
}

// --- words in global memory through which the blocks of a cooperative launch wait for each other

struct Word {
    Clock released;  // by the operations on it, each of which belongs to the release sequence of those before it
    vector<Thread*> watching;
};
static std::unordered_map<const void*, Word> words;
static std::unordered_map<const Thread*, std::pair<const void*, u32>> known;  // what a thread has loaded last

void clear_words() { words.clear(), known.clear(); }

static Word& word_at(const void* p, const Thread& t) {
    Word& w = words[p];
    if (w.released.seen.empty()) w.released.reset(t.block->cluster->components);
    return w;
}

static void add_release(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    void* p = (void*)f.get(i.args[0]);
    Word& w = word_at(p, t);
    release(t, w.released);
    atomic('+', p, f.get(i.args[1]), 4);
    vector<Thread*> watching;
    watching.swap(w.watching);
    for (Thread* other : watching) wake(other);
    pause_sometimes();
}

// A thread that finds the value that it has loaded last waits for another one, as the loop around the load would.
static void load_acquire(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    const void* p = (const void*)f.get(i.args[1]);
    if ((size_t)p % 4) misaligned(p, 4);
    u32 value;
    memcpy(&value, p, 4);
    if (known.count(&t) && known[&t] == std::make_pair(p, value)) {
        word_at(p, t).watching.push_back(&t);
        suspend("another value in global memory");
        memcpy(&value, p, 4);
    }
    known[&t] = {p, value};
    acquire(t, word_at(p, t).released);
    f.set(i.args[0], value);
    pause_sometimes();
}

void sync_handlers(std::map<string, Handler>& table) {
    table["bar.sync"] = table["bar.arrive"] = bar;
    table["mbarrier.init.shared::cta.b64"] = init;
    table["fence.mbarrier_init.release.cluster"] = fence_init;
    table["mbarrier.arrive.shared::cta.b64"] = arrive_once;
    table["mbarrier.arrive.shared::cluster.b64"] = arrive_once;
    table["mbarrier.arrive.expect_tx.shared::cta.b64"] = expect;
    table["mbarrier.try_wait.parity.shared::cta.b64"] = try_wait;
    table["fence.proxy.async.shared::cta"] = fence_proxy;
    table["barrier.cluster.arrive"] = table["barrier.cluster.arrive.relaxed"] = cluster_arrive;
    table["barrier.cluster.wait"] = cluster_wait;
    table["mapa.shared::cluster.u32"] = table["mapa.u64"] = mapa;
    table["red.release.gpu.global.add.u32"] = add_release;
    table["ld.acquire.gpu.global.u32"] = load_acquire;
    table["griddepcontrol.wait"] = grid_wait;
    table["griddepcontrol.launch_dependents"] = grid_launch;
    table["setmaxnreg.inc.sync.aligned.u32"] = table["setmaxnreg.dec.sync.aligned.u32"] = set_registers;
}

}  // namespace host
