// Fibers, the scheduler, launches, and the program that runs one printed file.
#include "machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <sstream>

#include "cuda.h"
#include "cuda_runtime.h"

Index3 threadIdx, blockIdx, blockDim, gridDim;

#if defined(__x86_64__)
// Saves the callee-saved registers on the stack, stores it in *rdi, and continues at the stack rsi.
asm(R"(
.text
.type host_switch,@function
host_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");
extern "C" void host_switch(void** from, void* to);
#else
#error "the switch of fibers is written for x86-64 only"
#endif

namespace host {

Machine gpu;

constexpr size_t STACK = 256 * 1024;

static vector<char*> free_stacks;
static vector<Register*> free_registers;
constexpr int POLICIES = 5;  // threads in order, last first, random, random with pauses, one warp last

void fault(const char* format, ...) {
    va_list list;
    va_start(list, format);
    fflush(stdout);
    fprintf(stderr, "fault: ");
    vfprintf(stderr, format, list);
    if (const Thread* t = gpu.current) {
        fprintf(stderr, "\n  thread %u of block %u", t->id, t->block->index);
        if (t->site) fprintf(stderr, ", line %d", t->site->line);
    }
    fprintf(stderr, "\n");
    va_end(list);
    _exit(3);
}

Thread& self() { return *gpu.current; }

// --- fibers

static void (*kernel_call)(void*);
static void* kernel_arguments;

static void leave(Thread& t) {
    check_rewrite();
    host_switch(&t.stack_pointer, gpu.scheduler);
}

static void thread_main() {
    kernel_call(kernel_arguments);
    Thread& t = self();
    t.state = State::DONE;
    leave(t);
}

static void prepare(Thread& t) {
    if (free_stacks.empty()) {
        void* p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        void* r = mmap(nullptr, STACK / 4 * sizeof(Register), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || r == MAP_FAILED) fault("no memory for stacks");
        free_stacks.push_back((char*)p);
        free_registers.push_back((Register*)r);
    }
    t.stack = free_stacks.back();
    t.registers = free_registers.back();
    madvise((void*)t.registers, STACK / 4 * sizeof(Register), MADV_DONTNEED);  // zeros again
    free_stacks.pop_back();
    free_registers.pop_back();
    void** top = (void**)(t.stack + STACK) - 2;
    top[0] = (void*)thread_main;  // `ret` of the first switch
    top[1] = nullptr;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    t.stack_pointer = top;
}

Register* register_of(const Thread& t, const void* place) {
    const size_t offset = (const char*)place - t.stack;
    return offset < STACK ? t.registers + offset / 4 : nullptr;
}

static void resume(Thread* t) {
    gpu.current = t;
    threadIdx.x = t->id;
    threadIdx.y = threadIdx.z = 0;
    blockIdx.x = t->block->index;
    blockIdx.y = blockIdx.z = 0;
    host_switch(&gpu.scheduler, t->stack_pointer);
    gpu.current = nullptr;
}

void wake(Thread* t) {
    if (t->state != State::BLOCKED) return;
    t->state = State::READY;
    gpu.ready.push_back(t);
}

void suspend(const string& why) {
    Thread& t = self();
    t.state = State::BLOCKED;
    t.waits = why;
    leave(t);
}

void pause_sometimes() {
    Thread& t = self();
    if (gpu.policy >= 3 && gpu.draw(8) == 0) {
        gpu.ready.push_back(&t);
        leave(t);
    }
}

static Thread* next_thread() {
    auto& r = gpu.ready;
    size_t n = 0;
    if (gpu.policy == 1) n = r.size() - 1;
    if (gpu.policy == 2 || gpu.policy == 3) n = gpu.draw((u32)r.size());
    if (gpu.policy == 4) {  // one warp runs only where no other can
        const u32 late = (u32)(gpu.launch * 7 + gpu.random % 5) % 12;
        for (n = 0; n + 1 < r.size() && r[n]->id / 32 % 12 == late; ++n) {}
    }
    Thread* t = r[n];
    r.erase(r.begin() + (long)n);
    return t;
}

// TMA copies land early, late or at any time, in any order.
static void land_one() {
    const size_t n = gpu.draw((u32)gpu.bulk.size());
    Bulk b = std::move(gpu.bulk[n]);
    gpu.bulk.erase(gpu.bulk.begin() + (long)n);
    b.land();
}

[[noreturn]] static void deadlock() {
    std::map<string, vector<const Thread*>> waits;
    for (const Cluster* c : gpu.resident)
        for (const Block& b : c->blocks)
            for (const Thread* t : b.members)
                if (t->state == State::BLOCKED) waits[t->waits].push_back(t);
    string text;
    for (const auto& [why, who] : waits) {
        text += "\n  " + std::to_string(who.size()) + " threads wait for " + why + ": first thread " +
                std::to_string(who[0]->id) + " of block " + std::to_string(who[0]->block->index);
        if (who[0]->site) text += ", line " + std::to_string(who[0]->site->line);
    }
    fault("deadlock%s", text.c_str());
}

void meet(const void* key, const string& what, void* mine, const std::function<void(Warp&)>& together) {
    Thread& t = self();
    Warp& w = *t.warp;
    if (w.arrived == 0) w.key = key, w.what = what;
    if (w.key != key)
        fault("lanes of one warp are at different instructions: %s and %s", w.what.c_str(), what.c_str());
    w.data[t.lane] = mine;
    ++w.arrived;
    if (w.arrived < 32) return suspend(what + " (lanes of the warp)");
    w.arrived = 0;
    together(w);
    for (Thread* other : w.lanes)
        if (other != &t) wake(other);
    pause_sometimes();
}

u32 new_component(Cluster& c) {
    const u32 n = c.components++;
    if (n >= 1u << (32 - TIME_BITS)) fault("too many components of clocks");
    for (Block& b : c.blocks)
        for (Thread* t : b.members) t->clock.seen.push_back(0), t->clock.proxied.push_back(0);
    return n;
}

// --- launches

struct KernelFacts {
    const Bounds* bounds = nullptr;
    int allowed_shared = 48 * 1024;
};
static std::map<const void*, KernelFacts>& kernels() {
    static std::map<const void*, KernelFacts> made;
    return made;
}

Bounds::Bounds(const void* kernel, const char* name, int threads, int min_blocks, int cluster)
    : kernel(kernel), name(name), threads(threads), min_blocks(min_blocks), cluster(cluster), next(nullptr) {
    kernels()[kernel].bounds = this;
}

constexpr int MOST_SHARED = 227 * 1024;

void allow_shared(const void* kernel, int bytes) {
    if (bytes > MOST_SHARED) fault("%d bytes of shared memory asked for", bytes);
    kernels()[kernel].allowed_shared = bytes;
}

static u8* shared_memory(size_t bytes) {  // aligned like the window, never freed: it is reused by position
    static vector<u8*> made;
    static size_t next = 0;
    if (bytes == 0) return next = 0, nullptr;
    if (next == made.size()) made.push_back((u8*)aligned_alloc(1024, 256 * 1024));
    u8* p = made[next++];
    memset(p, (int)(POISON & 0xff), bytes);
    return p;
}

static Cluster* make_cluster(u32 first, u32 size, u32 threads, u32 shared) {
    auto* c = new Cluster;
    c->size = size;
    c->blocks.resize(size);
    c->components = size * threads;
    for (u32 rank = 0; rank < size; ++rank) {
        Block& b = c->blocks[rank];
        b.cluster = c;
        b.index = first + rank;
        b.rank = rank;
        b.threads = b.alive = threads;
        b.size = shared;
        b.base = 1024 * (1 + gpu.policy % 3);
        b.memory = shared_memory((shared + 1023) / 1024 * 1024 + 1024);
        b.writer.assign(shared, 0);
        b.readers.assign(shared, 0);
        b.combined.assign(shared, 0);
        b.warps.resize(threads / 32);
        b.warp_registers.assign(threads / 32, (u32)gpu.registers);
        for (u32 id = 0; id < threads; ++id) {
            auto* t = new Thread;
            t->block = &b;
            t->warp = &b.warps[id / 32];
            t->id = id;
            t->lane = id % 32;
            t->component = rank * threads + id;
            t->clock.reset(c->components);
            t->clock.seen[t->component] = 1;
            t->warp->lanes[t->lane] = t;
            prepare(*t);
            b.members.push_back(t);
            gpu.ready.push_back(t);
        }
    }
    return c;
}

static void discard(Cluster* c) {
    for (Block& b : c->blocks)
        for (Thread* t : b.members) {
            free_stacks.push_back(t->stack);
            free_registers.push_back(t->registers);
            delete t;
        }
    delete c;
}

static void finish_thread(Thread& t) {
    if (t.warp->arrived) fault("a lane ended while others of its warp wait at %s", t.warp->what.c_str());
    if (!t.copies.copies.empty()) finish_groups(t, t.copies, 0, false);
    if (--t.block->alive == 0) finish_block(*t.block);
}

static void run_resident() {
    while (true) {
        if (!gpu.bulk.empty() && (gpu.ready.empty() || gpu.policy == 0 || (gpu.policy >= 2 && gpu.draw(16) == 0)))
            land_one();
        if (gpu.ready.empty()) {
            if (!gpu.bulk.empty()) continue;
            break;
        }
        Thread* t = next_thread();
        resume(t);
        if (t->state == State::DONE) gpu.current = t, finish_thread(*t), gpu.current = nullptr;
    }
    for (const Cluster* c : gpu.resident)
        for (const Block& b : c->blocks)
            if (b.alive) deadlock();
}

// Those of the simulated GPU, each of which runs one block of a cooperative launch.
static int multiprocessors() { return atoi(getenv("MULTIPROCESSORS") ? getenv("MULTIPROCESSORS") : "132"); }

// Whether the cluster of this first block runs: all do, or those that the environment names.
static bool is_chosen(u32 first) {
    static const char* given = getenv("BLOCKS");
    static std::set<u32> chosen;
    if (!given) return true;
    if (chosen.empty()) {
        std::istringstream words(given);
        for (u32 n; words >> n;) chosen.insert(n);
    }
    return chosen.count(first) > 0;
}

void launch(const void* kernel, unsigned blocks, unsigned threads, size_t shared, bool dependent, bool cooperative,
            void (*call)(void*), void* arguments) {
    const KernelFacts facts = kernels()[kernel];
    const Bounds& b = *facts.bounds;
    if (threads % 32 || threads > 1024 || (int)threads > b.threads)
        fault("%s: %u threads, the bound is %d", b.name, threads, b.threads);
    if ((int)shared > facts.allowed_shared) fault("%s: %zu bytes of shared memory were not allowed", b.name, shared);
    if (blocks == 0 || blocks % (unsigned)b.cluster) fault("%s: %u blocks are no clusters of %d", b.name, blocks, b.cluster);
    ++gpu.launch;
    gpu.dependent = dependent;
    gpu.registers = 65536 / (b.threads * b.min_blocks) / 8 * 8;
    if (gpu.registers > 255) gpu.registers = 255;
    kernel_call = call;
    kernel_arguments = arguments;
    gridDim.x = blocks;
    blockDim.x = threads;
    const u32 together = cooperative ? 1 : 1 + gpu.draw(3);  // clusters at a time
    const u32 size = cooperative ? blocks : (u32)b.cluster;  // all blocks of a cooperative launch know each other
    if (cooperative && (int)blocks > multiprocessors()) fault("%s: %u blocks do not run together", b.name, blocks);
    if (cooperative && b.cluster != 1) fault("%s: a cooperative launch of clusters", b.name);
    if (size * threads >= 1u << (32 - TIME_BITS)) fault("too many threads at the same time");
    clear_words();
    for (u32 first = 0; first < blocks;) {
        shared_memory(0);
        reset_order();
        for (u32 n = 0; n < together && first < blocks; first += size)
            if (is_chosen(first)) gpu.resident.push_back(make_cluster(first, size, threads, (u32)shared)), ++n;
        run_resident();
        for (Cluster* c : gpu.resident) discard(c);
        gpu.resident.clear();
    }
}

// --- the program: DIRECTORY POLICIES.. with files in0, in1, ..; `layout` lists the buffers: inputs, outputs, and outputs
// with contents before

static vector<u8> read_file(const string& name) {
    vector<u8> out;
    if (FILE* f = fopen(name.c_str(), "rb")) {
        fseek(f, 0, SEEK_END);
        out.resize((size_t)ftell(f));
        rewind(f);
        if (fread(out.data(), 1, out.size(), f) != out.size()) fault("cannot read %s", name.c_str());
        fclose(f);
    } else {
        fault("cannot open %s", name.c_str());
    }
    return out;
}

int main(int argc, char** argv, size_t workspace, int (*run)(Arguments)) {
    const string folder = argv[1];
    for (int a = 2; a < argc; ++a) {
        const int seed = atoi(argv[a]);
        gpu.policy = seed % POLICIES;
        gpu.random = 0x9e3779b97f4a7c15ull * (u64)(seed + 1);
        gpu.launch = 0;
        for (int i = 0; i < 8; ++i) gpu.draw(2);
        vector<Region> regions;
        FILE* layout = fopen((folder + "/layout").c_str(), "r");
        if (!layout) fault("no layout");
        char role;
        size_t bytes;
        while (fscanf(layout, " %c %zu", &role, &bytes) == 2) regions.push_back({nullptr, bytes, role});
        fclose(layout);
        regions.push_back({nullptr, workspace, 'w'});
        clear_arena();
        vector<void*> buffers;
        for (size_t n = 0; n < regions.size(); ++n) {
            Region& r = regions[n];
            r.data = arena(r.bytes);
            memset(r.data, r.role == 'w' && seed % 2 ? 0 : 0xff, r.bytes);  // a launch finds anything in its workspace
            if (r.role == 'i' || r.role == 'b') {
                const vector<u8> data = read_file(folder + "/in" + std::to_string(n));
                if (data.size() != r.bytes) fault("in%zu has %zu bytes", n, data.size());
                memcpy(r.data, data.data(), r.bytes);
            }
            buffers.push_back(r.data);
        }
        set_regions(regions);
        const int status = run({buffers.data(), buffers.back()});
        if (status) fault("the launcher returned %d", status);
        check_red_zones();
        for (size_t n = 0; n < regions.size(); ++n) {
            if (regions[n].role != 'o' && regions[n].role != 'b') continue;
            const string name = folder + "/out" + std::to_string(n) + "." + std::to_string(seed);
            FILE* f = fopen(name.c_str(), "wb");
            if (!f || fwrite(regions[n].data, 1, regions[n].bytes, f) != regions[n].bytes) fault("cannot write");
            fclose(f);
        }
    }
    return 0;
}

}  // namespace host

using namespace host;

static bool launch_failed = false;
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? host::multiprocessors() : 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
    const host::KernelFacts& facts = host::kernels()[kernel];
    *blocks = threads <= facts.bounds->threads && (int)shared <= facts.allowed_shared;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return launch_failed ? cudaErrorInvalidValue : cudaSuccess; }
