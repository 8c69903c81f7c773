// Every access of a kernel is checked: bounds, alignment, initialisation, and order.
//
// The compiler instruments loads and stores for a thread sanitizer; the functions that it calls are those below.
// They run before the access.
#include <sys/mman.h>

#include "cuda_runtime.h"
#include "machine.h"

namespace host {

// --- order

void Clock::join(const Clock& other) {
    const size_t n = other.seen.size();
    if (seen.size() < n) seen.resize(n), proxied.resize(n);
    for (size_t i = 0; i < n; ++i) seen[i] = seen[i] < other.seen[i] ? other.seen[i] : seen[i];
    for (size_t i = 0; i < n; ++i) proxied[i] = proxied[i] < other.proxied[i] ? other.proxied[i] : proxied[i];
}

void release(Thread& t, Clock& into) {
    into.join(t.clock);
    ++t.clock.seen[t.component];
}

void acquire(Thread& t, const Clock& from) { t.clock.join(from); }

// Sets of epochs, numbered; all bytes with the same readers share a set.
static vector<vector<u32>> sets(1);
static std::unordered_map<u64, u32> unions;

void reset_order() {
    sets.assign(1, {});
    unions.clear();
}

static u32 with(u32 set, u32 e) {
    const u64 key = (u64)set << 32 | e;
    const auto found = unions.find(key);
    if (found != unions.end()) return found->second;
    vector<u32> members;
    for (u32 m : sets[set])
        if (m >> TIME_BITS != e >> TIME_BITS) members.push_back(m);
    members.push_back(e);
    sets.push_back(members);
    const u32 made = (u32)sets.size() - 1;
    unions[key] = made;
    unions[(u64)made << 32 | e] = made;
    return made;
}

static string who(const Block& b, u32 e) {
    const u32 component = e >> TIME_BITS;
    if (component < b.threads * b.cluster->size)
        return "thread " + std::to_string(component % b.threads) + " of block " +
               std::to_string(b.cluster->blocks[component / b.threads].index);
    return "an asynchronous operation";
}

void read_shared(Block& b, u32 offset, u32 bytes, const Clock& clock, Proxy proxy, u32 as, const char* what) {
    u32 last_writer = POISON, last_readers = POISON, result = 0;
    for (u32 n = offset; n < offset + bytes; ++n) {
        const u32 w = b.writer[n];
        if (w == last_writer && b.readers[n] == last_readers) {
            b.readers[n] = result;
            continue;
        }
        if (w == 0) fault("%s reads shared byte %u, which was never written", what, n);
        if (b.combined[n])
            for (u32 e : sets[b.readers[n]])
                if (!clock.knows(e)) fault("%s reads shared byte %u, into which %s may still combine", what, n, who(b, e).c_str());
        if (!clock.knows(w))
            fault("%s reads shared byte %u, which %s wrote without an order between them", what, n, who(b, w).c_str());
        if (proxy == Proxy::ASYNC && !clock.knows_proxied(w))
            fault("%s reads shared byte %u, which %s wrote, without a proxy fence", what, n, who(b, w).c_str());
        last_writer = w, last_readers = b.readers[n];
        result = b.readers[n] = with(last_readers, as);
    }
}

// Threads may write the same value to one place: lanes of a warp in shared memory, and threads of a launch in global
// memory. The value is known only after the store.
static struct {
    const u8* at;
    size_t bytes;
    u8 before[256];
} rewritten;

static void note_rewrite(const void* at, size_t bytes) {
    rewritten.at = (const u8*)at;
    rewritten.bytes = bytes;
    memcpy(rewritten.before, at, bytes);
}

// Two NaN of a float type are the same value: a GPU has one NaN for all results, and this machine several.
template <typename Word>
static bool same_but_nan(const u8* a, const u8* b, size_t bytes, Word exponent) {
    for (size_t n = 0; n < bytes; n += sizeof(Word)) {
        Word x, y;
        memcpy(&x, a + n, sizeof x);
        memcpy(&y, b + n, sizeof y);
        const Word magnitude = Word(~Word(0)) >> 1;
        if (x != y && ((x & magnitude) <= exponent || (y & magnitude) <= exponent)) return false;
    }
    return true;
}

static bool same_values(const u8* a, const u8* b, size_t bytes) {
    return !memcmp(a, b, bytes) || (bytes % 4 == 0 && same_but_nan<u32>(a, b, bytes, 0x7f800000u)) ||
           (bytes % 2 == 0 && same_but_nan<u16>(a, b, bytes, 0x7c00u));
}

void check_rewrite() {
    if (rewritten.bytes && !same_values(rewritten.at, rewritten.before, rewritten.bytes))
        fault("a store changes what another thread wrote, without an order between them");
    rewritten.bytes = 0;
}

static bool same_warp(const Block& b, u32 e, u32 as) {
    const u32 one = e >> TIME_BITS, other = as >> TIME_BITS;
    return one < b.threads * b.cluster->size && one / b.threads == other / b.threads && one / 32 == other / 32;
}

void write_shared(Block& b, u32 offset, u32 bytes, const Clock& clock, Proxy proxy, u32 as, const char* what) {
    check_rewrite();
    u32 last_writer = POISON, last_readers = POISON;
    for (u32 n = offset; n < offset + bytes; ++n) {
        const u32 w = b.writer[n], r = b.readers[n];
        if (w != last_writer || r != last_readers) {
            last_writer = w, last_readers = r;
            if (w && !(proxy == Proxy::ASYNC ? clock.knows_proxied(w) : clock.knows(w))) {
                if (proxy == Proxy::ASYNC || !same_warp(b, w, as))
                    fault("%s writes shared byte %u, which %s wrote without an order (or a proxy fence) between them", what, n,
                          who(b, w).c_str());
                if (!rewritten.bytes) note_rewrite(b.memory + n, offset + bytes - n);
            }
            for (u32 e : sets[r])
                if (!clock.knows(e))
                    fault("%s writes shared byte %u, which %s may still read", what, n, who(b, e).c_str());
        }
        b.writer[n] = as;
        b.readers[n] = 0;
        b.combined[n] = 0;
    }
}

// Any number of threads may combine into a byte behind the store that they all know; they are noted as its readers.
static void combine_shared(Block& b, u32 offset, u32 bytes, const Clock& clock, u32 as) {
    check_rewrite();
    for (u32 n = offset; n < offset + bytes; ++n) {
        if (!b.combined[n]) {
            read_shared(b, n, 1, clock, Proxy::GENERIC, as, "an atomic operation");
            write_shared(b, n, 1, clock, Proxy::GENERIC, as, "an atomic operation");
            b.combined[n] = 1;
        }
        b.readers[n] = with(b.readers[n], as);
    }
    check_rewrite();
}

void land_shared(Block& b, u32 offset, u32 bytes, u32 issued_as, u32 as, const char* what) {
    for (u32 n = offset; n < offset + bytes; ++n) {
        if (b.writer[n] != issued_as || b.readers[n])
            fault("shared byte %u was used while %s was in flight", n, what);
        b.writer[n] = as;
    }
}

// --- global memory: one arena, red zones between the buffers

constexpr size_t ARENA = (size_t)4 << 30, RED = 1024;  // addresses, of which what is used takes memory
struct History {
    u32 writer;             // 1 + thread of the grid
    u16 written, read;      // launches
    u32 when;               // epoch of the last write, a time of the writer's cluster; of EVERYONE: who combined last
};
static u8* space;
static History* history;
static size_t used;
static vector<Region> regions;

void clear_arena() {
    if (space) madvise((void*)history, used * sizeof(History), MADV_DONTNEED);  // zeros again
    used = 0;
}

u8* arena(size_t bytes) {
    if (!space) {
        space = (u8*)mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        history = (History*)mmap(nullptr, ARENA * sizeof(History), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED || history == MAP_FAILED) fault("no memory");
    }
    memset(space + used, 0xa5, RED);
    u8* p = space + used + RED;
    used = (used + RED + bytes + 1023) / 1024 * 1024;
    if (used + RED > ARENA) fault("the buffers are too large");
    memset(p + bytes, 0xa5, (size_t)(space + used + RED - p - bytes));
    return p;
}

void set_regions(const vector<Region>& r) { regions = r; }

void check_red_zones() {
    size_t at = 0;
    for (const Region& r : regions) {
        for (; space + at < r.data; ++at)
            if (space[at] != 0xa5) fault("a red zone was written");
        at += r.bytes;
    }
}

static const Region& region_of(const void* p, size_t bytes, const char* what) {
    for (const Region& r : regions)
        if ((const u8*)p >= r.data && (const u8*)p + bytes <= r.data + r.bytes) return r;
    for (size_t n = 0; n < regions.size(); ++n)
        if ((const u8*)p >= regions[n].data - RED && (const u8*)p < regions[n].data + regions[n].bytes + RED)
            fault("%s of %zu bytes at byte %td of buffer %zu, which has %zu", what, bytes, (const u8*)p - regions[n].data, n,
                  regions[n].bytes);
    fault("%s of %zu bytes outside of every buffer", what, bytes);
}

static const u32 EVERYONE = ~0u;  // the writer of what threads combine into

static u32 grid_thread(const Thread& t) { return t.block->index * t.block->threads + t.id + 1; }

// Whether the writer is of the same cluster and a barrier lies between.
static bool ordered(const History& h, const Thread& t) {
    const u32 size = t.block->cluster->size;
    return (h.writer - 1) / t.block->threads / size == t.block->index / size && t.clock.knows(h.when);
}

void read_global(const void* p, size_t bytes, const Thread& t, const char* what) {
    region_of(p, bytes, what);
    const u32 me = grid_thread(t);
    const bool early = gpu.dependent && !t.grid_waited;
    for (History* h = history + ((const u8*)p - space); bytes--; ++h) {
        if (h->written == gpu.launch && h->writer != me && !ordered(*h, t)) fault("%s reads what another thread of the launch wrote", what);
        if (early && h->written && h->written < gpu.launch) fault("%s reads an earlier launch's result before the wait", what);
        h->read = (u16)gpu.launch;
    }
}

void write_global(const void* p, size_t bytes, const Thread& t, const char* what) {
    check_rewrite();
    if (region_of(p, bytes, what).role == 'i') fault("%s writes an input", what);
    const u32 me = grid_thread(t);
    const size_t size = bytes;
    const bool early = gpu.dependent && !t.grid_waited;
    for (History* h = history + ((const u8*)p - space); bytes--; ++h) {
        // The thread that combined last may store behind it; an atomic operation of another thread that follows faults.
        const bool mine = h->writer == me || (h->writer == EVERYONE && h->when == me);
        if (h->written == gpu.launch && !mine && !ordered(*h, t) && !rewritten.bytes) note_rewrite(p, size);
        if (early && (h->written || h->read) && gpu.launch > 1) fault("%s writes memory of an earlier launch before the wait", what);
        h->writer = me;
        h->when = t.now();
        h->written = (u16)gpu.launch;
    }
}

static unsigned long long combined(char op, void* p, unsigned long long value, int bytes) {
    unsigned long long old = 0;
    memcpy(&old, p, (size_t)bytes);
    const int unused = 64 - 8 * bytes;
    const long long a = (long long)(old << unused) >> unused, b = (long long)(value << unused) >> unused;
    const unsigned long long ua = old, ub = value << unused >> unused;
    const unsigned long long made = op == '+'   ? ua + ub
                                    : op == '>' ? (unsigned long long)(a > b ? a : b)
                                    : op == '<' ? (unsigned long long)(a < b ? a : b)
                                    : op == ')' ? (ua > ub ? ua : ub)
                                                : (ua < ub ? ua : ub);
    memcpy(p, &made, (size_t)bytes);
    return old;
}

unsigned long long atomic(char op, void* p, unsigned long long value, int bytes) {
    Thread& t = self();
    pause_sometimes();
    if ((size_t)((const u8*)p - t.block->memory) < t.block->size) {
        if ((size_t)p % (size_t)bytes) fault("an atomic operation at %p is misaligned", p);
        combine_shared(*t.block, (u32)((const u8*)p - t.block->memory), (u32)bytes, t.clock, t.now());
        return combined(op, p, value, bytes);
    }
    if (region_of(p, (size_t)bytes, "an atomic operation").role == 'i') fault("an atomic operation writes an input");
    if ((size_t)p % (size_t)bytes) fault("an atomic operation at %p is misaligned", p);
    const u32 me = grid_thread(t);
    const bool early = gpu.dependent && !t.grid_waited;
    History* h = history + ((u8*)p - space);
    for (int n = 0; n < bytes; ++n) {
        if (h[n].written == gpu.launch && h[n].writer != EVERYONE && h[n].writer != me)
            fault("an atomic operation on what another thread wrote in this launch");
        if (early && h[n].written && h[n].written < gpu.launch) fault("an atomic operation before the wait for earlier launches");
        h[n].writer = EVERYONE;
        h[n].when = me;
        h[n].written = (u16)gpu.launch;
    }
    return combined(op, p, value, bytes);
}

void misaligned(const void* address, size_t size) { fault("an access of %zu bytes at %p is misaligned", size, address); }

unsigned shared_window(const void* p) {
    const Block& b = *self().block;
    return b.base + (u32)((const u8*)p - b.memory);
}

unsigned char* shared_base();
unsigned char* shared_base() { return self().block->memory; }

Place resolve(u32 address, u32 bytes, const char* what) {
    Block* b = self().block;
    if (address >= WINDOW) {
        const u32 rank = (address >> 24) - 1;
        if (rank >= b->cluster->size) fault("%s: no block %u in the cluster", what, rank);
        b = &b->cluster->blocks[rank];
        address &= WINDOW - 1;
        if (b->alive == 0) fault("%s: block %u has ended", what, b->index);
    }
    if (address < b->base || address + bytes > b->base + b->size)
        fault("%s: shared bytes %d to %d, the block has %u", what, (int)(address - b->base), (int)(address - b->base + bytes),
              b->size);
    return {b, address - b->base};
}

static void touch_register(const void* p, size_t bytes, bool write) {
    Thread& t = self();
    Register* r = register_of(t, p);
    if (!r) return;
    for (size_t n = 0; n < (bytes + 3) / 4; ++n) {
        if (r[n].result) fault("the accumulator of an MMA in flight is %s", write ? "written" : "read");
        if (write && r[n].operand) fault("the register operand of an MMA in flight is written");
        r[n].used = t.fences;
        if (write) r[n].written = t.fences;
    }
}

static inline void touch(const void* p, size_t bytes, bool write) {
    if (!gpu.current) return;
    Thread& t = *gpu.current;
    const u8* at = (const u8*)p;
    const size_t in_stack = (size_t)((const char*)p - t.stack);
    if (in_stack < 256 * 1024) return touch_register(p, bytes, write);
    if ((size_t)(at - t.block->memory) < 256 * 1024 || t.block->cluster->size > 1) {
        for (Block& b : t.block->cluster->blocks) {
            const size_t offset = (size_t)(at - b.memory);
            if (offset >= 256 * 1024) continue;
            if (offset + bytes > b.size) fault("an access to shared byte %zu, the block has %u", offset, b.size);
            if (&b != t.block && b.alive == 0) fault("an access to shared memory of a block that has ended");
            if (write)
                write_shared(b, (u32)offset, (u32)bytes, t.clock, Proxy::GENERIC, t.now(), "a store");
            else
                read_shared(b, (u32)offset, (u32)bytes, t.clock, Proxy::GENERIC, t.now(), "a load");
            for (const auto& [where, barrier] : b.barriers)
                if (offset < where + 8 && where < offset + bytes) fault("an access to the bytes of an mbarrier");
            return;
        }
    }
    if ((size_t)(at - space) < ARENA) write ? write_global(p, bytes, t, "a store") : read_global(p, bytes, t, "a load");
}

}  // namespace host

using namespace host;

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
    region_of(p, bytes, "cudaMemsetAsync");
    memset(p, value, bytes);
    return cudaSuccess;
}

#define ACCESS(SIZE)                                                                        \
    void __tsan_read##SIZE(void* p) { touch(p, SIZE, false); }                              \
    void __tsan_write##SIZE(void* p) { touch(p, SIZE, true); }                              \
    void __tsan_unaligned_read##SIZE(void* p) { touch(p, SIZE, false); }                    \
    void __tsan_unaligned_write##SIZE(void* p) { touch(p, SIZE, true); }                    \
    void __tsan_volatile_read##SIZE(void* p) { touch(p, SIZE, false); }                     \
    void __tsan_volatile_write##SIZE(void* p) { touch(p, SIZE, true); }

extern "C" {
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_read_range(void* p, size_t n) { touch(p, n, false); }
void __tsan_write_range(void* p, size_t n) { touch(p, n, true); }
// of the host, whose functions remember what they found
u8 __tsan_atomic8_load(const volatile u8* p, int) { return *p; }
void __tsan_atomic8_store(volatile u8* p, u8 value, int) { *p = value; }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __ubsan_handle_out_of_bounds(void*, void*) { fault("a register array is indexed out of its bounds"); }
void __ubsan_handle_out_of_bounds_abort(void*, void*) { fault("a register array is indexed out of its bounds"); }
}
