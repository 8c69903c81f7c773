// Asynchronous copies: cp.async, TMA loads and stores; tensor maps as the launcher encodes them.
#include "cuda.h"
#include "cuda_runtime.h"
#include "machine.h"

namespace host {

// --- tensor maps

struct Map {
    u64 magic, base, strides[4];
    u32 sizes[5];
    u16 box[5];
    u8 rank, element, swizzle, type;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");
constexpr u64 MAGIC = 0x6e61757469616d70ull;

static int element_bytes(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
        default: return 4;
    }
}

// What the driver refuses is refused here too (CUDA Driver API, cuTensorMapEncodeTiled).
static CUresult encode_tiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* base,
                             const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                             const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    const int bytes = element_bytes(type);
    Map m = {};
    m.magic = MAGIC;
    m.base = (u64)base;
    m.rank = (u8)rank;
    m.element = (u8)bytes;
    m.type = (u8)type;
    m.swizzle = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : (u8)(16 << swizzle);
    if (rank < 1 || rank > 5 || (u64)base % 16 || (size_t)out % 64) return CUDA_ERROR_INVALID_VALUE;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_INVALID_VALUE;
    if (box[0] * (u32)bytes % 16 || (m.swizzle && box[0] * (u32)bytes > m.swizzle)) return CUDA_ERROR_INVALID_VALUE;
    for (u32 n = 0; n < rank; ++n) {
        if (sizes[n] == 0 || sizes[n] > 1ull << 32 || box[n] == 0 || box[n] > 256 || steps[n] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (n > 0 && (strides[n - 1] % 16 || strides[n - 1] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
        if (n > 0) m.strides[n - 1] = strides[n - 1];
        m.sizes[n] = (u32)sizes[n];
        m.box[n] = (u16)box[n];
    }
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

static Map decode(u64 address) {
    if (address % 64) fault("a tensor map at a misaligned address");
    Map m;
    memcpy(&m, (const void*)address, sizeof m);
    if (m.magic != MAGIC) fault("a tensor map that nobody encoded");
    return m;
}

static u32 swizzled(u32 address, int width) {
    return width ? address ^ (address >> 7 & (u32)(width / 16 - 1)) << 4 : address;
}

// Calls `row(address in global memory or null, offset in the box, bytes)` for each run of elements that are inside
// (or outside: null) of the tensor.
template <class F> static void each_row(const Map& m, const vector<long long>& at, F row) {
    u32 count = 1;
    for (int n = 1; n < m.rank; ++n) count *= m.box[n];
    const u32 bytes = m.element;
    for (u32 r = 0; r < count; ++r) {
        u32 rest = r;
        bool inside = true;
        u64 address = m.base;
        for (int n = 1; n < m.rank; ++n) {
            const long long x = at[(size_t)n] + rest % m.box[n];
            rest /= m.box[n];
            inside = inside && x >= 0 && x < m.sizes[n];
            address += (u64)x * m.strides[n - 1];
        }
        for (u32 c = 0; c < m.box[0]; ++c) {
            const long long x = at[0] + c;
            const bool in = inside && x >= 0 && x < m.sizes[0];
            row(in ? (u8*)(address + (u64)x * bytes) : nullptr, (r * m.box[0] + c) * bytes, bytes);
        }
    }
}

static u32 box_bytes(const Map& m) {
    u32 out = m.element;
    for (int n = 0; n < m.rank; ++n) out *= m.box[n];
    return out;
}

static vector<long long> coordinates(const Frame& f, const Argument& where, const Map& m, const string& name) {
    if (where.items.size() != 2 || where.items[1].kind != Argument::LIST) fault("%s: no coordinates", name.c_str());
    vector<long long> at;
    for (const Argument& a : where.items[1].items) at.push_back((int)f.get(a));
    const int rank = name[strlen("cp.async.bulk.tensor.")] - '0';
    if (rank != (int)at.size() || rank != m.rank) fault("%s: %zu coordinates for a map of %d axes", name.c_str(), at.size(), m.rank);
    return at;
}

// --- TMA loads

static void tma_load(Frame& f, const Instruction& i, bool multicast) {
    Thread& t = *f.thread;
    pause_sometimes();
    if (i.args.size() != (multicast ? 4u : 3u)) fault("%s: operands", i.name.c_str());
    const Map m = decode(f.get(i.args[1].items[0]));
    const vector<long long> at = coordinates(f, i.args[1], m, i.name);
    const u32 bytes = box_bytes(m);
    const Place to = resolve((u32)f.get(i.args[0]), bytes, "a TMA load");
    const Place bar = resolve((u32)f.get(i.args[2]), 8, "a TMA load's mbarrier");
    const u32 address = to.block->base + to.offset;
    if (address % 128) fault("a TMA load to a misaligned address");
    if (to.block != bar.block) fault("a TMA load with an mbarrier in another block");
    auto data = std::make_shared<vector<u8>>(bytes);
    each_row(m, at, [&](u8* p, u32 offset, u32 n) {
        if (p) {
            read_global(p, n, t, "a TMA load");
            memcpy(data->data() + swizzled(address + offset, m.swizzle) - address, p, n);
        }
    });
    Cluster& c = *t.block->cluster;
    const u32 mask = multicast ? (u32)f.get(i.args[3]) : 1u << to.block->rank;
    if (mask == 0 || mask >> c.size) fault("a multicast to blocks %#x of a cluster of %u", mask, c.size);
    for (u32 rank = 0; rank < c.size; ++rank) {
        if (!(mask >> rank & 1)) continue;
        Block& b = c.blocks[rank];
        if (b.alive == 0) fault("a TMA load into block %u, which has ended", b.index);
        Mbarrier& barrier = barrier_at({&b, bar.offset}, "a TMA load");
        if (!barrier.fenced) fault("a TMA load with an mbarrier without fence.mbarrier_init");
        if (!t.clock.knows(barrier.initialiser)) fault("a TMA load: no order after the mbarrier's initialisation");
        const u32 mark = epoch(barrier.component, barrier.phase + 1);
        write_shared(b, to.offset, bytes, t.clock, Proxy::ASYNC, mark, "a TMA load");
        memset(b.memory + to.offset, 0xff, bytes);
        gpu.bulk.push_back({&c, [&b, data, mark, bytes, offset = to.offset, where = bar.offset] {
            Mbarrier& now = b.barriers.at(where);
            if (b.alive == 0) fault("a TMA load arrives in block %u, which has ended", b.index);
            land_shared(b, offset, bytes, mark, epoch(now.component, now.phase + 1), "a TMA load");
            memcpy(b.memory + offset, data->data(), bytes);
            complete_bytes(b, where, bytes);
        }});
    }
}

// --- groups of copies: cp.async and TMA stores

static void finish_copy(Groups& g, size_t n) {
    const auto land = std::move(g.copies[n].land);
    g.copies.erase(g.copies.begin() + (long)n);
    land();
}

void finish_groups(Thread& t, Groups& g, u64 left, bool proxied) {
    const u64 upto = g.open - 1 < left ? 0 : g.open - 1 - left;
    while (!g.copies.empty() && g.copies.front().group <= upto) finish_copy(g, 0);
    if (upto <= g.released || g.component == 0) return;
    g.released = upto;
    t.clock.seen[g.component] = (u32)upto;
    if (proxied) t.clock.proxied[g.component] = (u32)upto;
}

static void add(Thread& t, Groups& g, std::function<void()> land) {
    g.copies.push_back({std::move(land), g.open});
    if (gpu.policy == 0 || (gpu.policy >= 2 && gpu.draw(3) == 0)) {
        const auto now = std::move(g.copies.back().land);
        g.copies.pop_back();
        now();
    }
    (void)t;
}

static u32 mark_of(Thread& t, Groups& g) {
    if (g.component == 0) g.component = new_component(*t.block->cluster);
    return epoch(g.component, (u32)g.open);
}

static void copy(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    const u32 size = (u32)f.get(i.args[2]), given = i.args.size() > 3 ? (u32)f.get(i.args[3]) : size;
    const bool global = i.parts[2] == "cg";
    if (size != 16 && (global || (size != 4 && size != 8))) fault("%s of %u bytes", i.name.c_str(), size);
    if (given > size) fault("cp.async reads %u of %u bytes", given, size);
    const u32 address = (u32)f.get(i.args[0]);
    const Place to = resolve(address, size, "cp.async");
    const u8* from = (const u8*)f.get(i.args[1]);
    if (address % size || (given && (size_t)from % size)) fault("cp.async: a misaligned address");
    if (given) read_global(from, given, t, "cp.async");
    const u32 mark = mark_of(t, t.copies);
    Block& b = *to.block;
    write_shared(b, to.offset, size, t.clock, Proxy::GENERIC, mark, "cp.async");
    u8* const at = b.memory + to.offset;
    memset(at, 0xff, size);
    add(t, t.copies, [=, &b] {
        land_shared(b, to.offset, size, mark, mark, "cp.async");
        memset(at, 0, size);
        memcpy(at, from, given);
    });
}

static void commit(Frame& f, const Instruction&) { ++f.thread->copies.open; }
static void wait(Frame& f, const Instruction& i) {
    finish_groups(*f.thread, f.thread->copies, f.get(i.args[0]), false);
    pause_sometimes();
}

static void tma_store(Frame& f, const Instruction& i) {
    Thread& t = *f.thread;
    if (i.args.size() != 2) fault("%s: operands", i.name.c_str());
    const Map m = decode(f.get(i.args[0].items[0]));
    const vector<long long> at = coordinates(f, i.args[0], m, i.name);
    const u32 bytes = box_bytes(m), address = (u32)f.get(i.args[1]);
    const Place from = resolve(address, bytes, "a TMA store");
    if (address % 128) fault("a TMA store from a misaligned address");
    if (from.block != t.block) fault("a TMA store from another block");
    const Block& b = *from.block;
    read_shared(*from.block, from.offset, bytes, t.clock, Proxy::ASYNC, mark_of(t, t.stores), "a TMA store");
    add(t, t.stores, [=, &t, &b] {
        each_row(m, at, [&](u8* p, u32 offset, u32 n) {
            if (!p) return;
            write_global(p, n, t, "a TMA store");
            memcpy(p, b.memory + from.offset + swizzled(address + offset, m.swizzle) - address, n);
        });
    });
    pause_sometimes();
}

static void bulk_tensor(Frame& f, const Instruction& i) {
    const string kind = i.name.substr(strlen("cp.async.bulk.tensor.1d."));
    const string load = "shared::cluster.global.mbarrier::complete_tx::bytes";
    if (kind == load) return tma_load(f, i, false);
    if (kind == load + ".multicast::cluster") return tma_load(f, i, true);
    if (kind == "global.shared::cta.bulk_group") return tma_store(f, i);
    fault("%s is not known", i.name.c_str());
}

static void bulk_commit(Frame& f, const Instruction&) { ++f.thread->stores.open; }
static void bulk_wait(Frame& f, const Instruction& i) {
    finish_groups(*f.thread, f.thread->stores, f.get(i.args[0]), true);
    pause_sometimes();
}

void copy_handlers(std::map<string, Handler>& table) {
    table["cp.async.ca.shared.global"] = table["cp.async.cg.shared.global"] = copy;
    table["cp.async.commit_group"] = commit;
    table["cp.async.wait_group"] = wait;
    for (const char* rank : {"1d", "2d", "3d", "4d", "5d"}) table[string("cp.async.bulk.tensor.") + rank + ".*"] = bulk_tensor;
    table["cp.async.bulk.commit_group"] = bulk_commit;
    table["cp.async.bulk.wait_group"] = table["cp.async.bulk.wait_group.read"] = bulk_wait;
}

}  // namespace host

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    const bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *function = known ? (void*)host::encode_tiled : nullptr;
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
