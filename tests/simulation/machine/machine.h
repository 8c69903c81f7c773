// The simulated GPU: threads are fibers, shared memory has a history for each byte, order is a vector clock.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device.h"
#undef reinterpret_cast

namespace host {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = unsigned long long;
using std::string;
using std::vector;

[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr u32 POISON = 0xffffffffu;        // a NaN in every float type
constexpr u32 WINDOW = 1u << 24;           // shared::cluster addresses: block of the cluster in the highest byte

// An epoch is a component of the clocks (upper 13 bits) and its time (lower 19 bits); 0: never.
constexpr int TIME_BITS = 19;
inline u32 epoch(u32 component, u32 time) { return component << TIME_BITS | time; }

// What happened before: by time of each component. `seen` orders accesses of the generic proxy, and reads before
// writes; `proxied` is the part of it that a proxy fence has made visible to TMA and wgmma.
struct Clock {
    vector<u32> seen, proxied;
    void join(const Clock& other);
    void reset(size_t components) { seen.assign(components, 0), proxied.assign(components, 0); }
    bool knows(u32 e) const { return seen[e >> TIME_BITS] >= (e & ((1u << TIME_BITS) - 1)); }
    bool knows_proxied(u32 e) const { return proxied[e >> TIME_BITS] >= (e & ((1u << TIME_BITS) - 1)); }
};

struct Thread;
struct Block;
struct Cluster;

struct Mbarrier {
    u32 expected = 0, phase = 0, component = 0;
    long long pending = 0, bytes = 0;
    bool fenced = false;
    u32 initialiser = 0;  // component of the thread that initialised it
    Clock arriving, completed;
};

struct RegisterRequest {
    u32 warp, count;
    vector<bool*> granted;  // of each lane
};

struct NamedBarrier {
    u32 count = 0, arrived = 0;
    Clock clock;
    vector<Thread*> waiting;
};

struct Warp {
    Thread* lanes[32] = {};
    const void* key = nullptr;  // the instruction at which lanes wait for each other
    string what;
    u32 arrived = 0;
    void* data[32] = {};
    // wgmma: operations issued, and those that are not complete
    struct Mma;
    u64 groups = 0, completed = 0;  // committed, waited for
    u64 trace = 0;
    std::deque<Mma*> pending;
    u32 component = 0;
};

// A copy of cp.async, cp.async.bulk or a TMA store that is on its way.
struct Pending {
    std::function<void()> land;
    u64 group = 0;
};

struct Groups {
    u64 open = 1, released = 0;  // the group that is being filled; groups up to `released` have been waited for
    u32 component = 0;
    std::deque<Pending> copies;
};

enum class State { READY, BLOCKED, DONE };

struct Register {
    u32 written, used;   // fences of the thread when it was last written, last accessed
    u8 result, operand;  // MMAs in flight that write it, that read it
};

struct Thread {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    Register* registers = nullptr;  // one for each word of the stack
    Block* block = nullptr;
    Warp* warp = nullptr;
    u32 id = 0, lane = 0, component = 0;
    State state = State::READY;
    string waits;
    Clock clock;
    Groups copies, stores;
    u32 fences = 1;
    bool grid_waited = false;
    bool cluster_arrived = false;
    u32 cluster_generation = 0;  // completed barriers when it arrived
    Site* site = nullptr;
    u32 time() const { return clock.seen[component]; }
    u32 now() const { return epoch(component, time()); }
};

struct Block {
    Cluster* cluster = nullptr;
    u32 index = 0, rank = 0, threads = 0, alive = 0;
    u8* memory = nullptr;
    u32 base = 0, size = 0;  // the window address of the first byte; bytes
    vector<u32> writer, readers;  // of each byte: epoch of the last write, set of epochs that read it since
    vector<u8> combined;  // of each byte: whether threads have combined into it since; they are among its readers
    std::unordered_map<u32, Mbarrier> barriers;
    NamedBarrier named[16];
    vector<Warp> warps;
    vector<Thread*> members;
    long long free_registers = 0;
    vector<u32> warp_registers;
    vector<RegisterRequest> requests;
};

struct Cluster {
    vector<Block> blocks;
    u32 components = 0;
    u32 generation = 0, arrived = 0, size = 0;  // of the barrier; blocks
    Clock arriving, released;
    vector<Thread*> waiting;
};

// A TMA load that is on its way.
struct Bulk {
    Cluster* cluster;
    std::function<void()> land;
};

struct Machine {
    u64 random = 1;
    int policy = 0;
    u32 launch = 0;
    bool dependent = false;
    int registers = 0;  // that each thread has at launch
    Thread* current = nullptr;
    void* scheduler = nullptr;
    vector<Thread*> ready;
    vector<Bulk> bulk;
    vector<Cluster*> resident;
    u32 draw(u32 n) {  // xorshift: the same numbers on every machine
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return n ? (u32)(random >> 11) % n : 0;
    }
};
extern Machine gpu;

struct Region {  // a buffer in global memory
    u8* data;
    size_t bytes;
    char role;  // input, output, workspace
};

// --- fibers and scheduling (machine.cpp)
void suspend(const string& why);              // until somebody calls wake
void wake(Thread* t);
void pause_sometimes();                       // a switch, if the seed wants one
void clear_words();
u32 new_component(Cluster& c);
Thread& self();
// All lanes of the warp meet at `key`; the last one runs `together`.
void meet(const void* key, const string& what, void* mine, const std::function<void(Warp&)>& together);

// --- memory and its order (memory.cpp)
enum class Proxy { GENERIC, ASYNC };
struct Place {
    Block* block;
    u32 offset;
};
Place resolve(u32 window_address, u32 bytes, const char* what);   // own block, or one of the cluster
void release(Thread& t, Clock& into);
void acquire(Thread& t, const Clock& from);
void read_shared(Block& b, u32 offset, u32 bytes, const Clock& clock, Proxy proxy, u32 as, const char* what);
void write_shared(Block& b, u32 offset, u32 bytes, const Clock& clock, Proxy proxy, u32 as, const char* what);
// At the end of an asynchronous write: nobody may have touched the bytes since it was issued.
void land_shared(Block& b, u32 offset, u32 bytes, u32 issued_as, u32 as, const char* what);
void read_global(const void* p, size_t bytes, const Thread& t, const char* what);
void write_global(const void* p, size_t bytes, const Thread& t, const char* what);
void clear_arena();
u8* arena(size_t bytes);
void set_regions(const vector<Region>& regions);
void check_red_zones();
void check_rewrite();
Register* register_of(const Thread& t, const void* place);
void reset_order();

// --- barriers (sync.cpp)
Mbarrier& barrier_at(Place p, const char* what);
void arrive(Mbarrier& b, Block& where, u32 count, const char* what);
void complete_bytes(Block& where, u32 offset, u32 bytes);
void finish_block(Block& b);

// --- PTX (ptx.cpp)
struct Argument {
    enum Kind { OPERAND, NAME, NUMBER, MEMORY, LIST, SINK } kind = SINK;
    int number = 0;          // of an operand or a named register
    u64 value = 0;
    vector<Argument> items;  // of a list, or inside brackets
};
struct Frame;
struct Instruction;
using Handler = void (*)(Frame&, const Instruction&);
struct Instruction {
    string name;             // the whole mnemonic
    vector<string> parts;    // split at dots
    int predicate = -1;
    bool negated = false;
    vector<Argument> args;
    Handler run = nullptr;
    int target = -1;         // of a branch
};
struct Frame {
    Thread* thread;
    Site* site;
    u64 value[320];          // bits of inputs
    void* place[320];        // registers
    u8 bytes[320];
    u64 named[8];
    int next;                // instruction
    u64 get(const Argument& a) const;
    void set(const Argument& a, u64 bits);
    float real(const Argument& a) const { return as<float>((u32)get(a)); }
};
Handler find_handler(const Instruction& i);
void scalar_handlers(std::map<string, Handler>& table);
void sync_handlers(std::map<string, Handler>& table);
void copy_handlers(std::map<string, Handler>& table);
void matrix_handlers(std::map<string, Handler>& table);

// --- numbers (ptx.cpp)
float from_half(u16 bits);
float from_brain(u16 bits);
float from_float8(u8 bits, bool e4m3);
u16 to_half(float x);
u16 to_brain(float x);

// --- MMAs in flight (matrix.cpp)
void finish_mmas(Warp& w, u64 groups_left);

// --- copies in flight (copies.cpp)
void finish_groups(Thread& t, Groups& g, u64 groups_left, bool proxied);

}  // namespace host
