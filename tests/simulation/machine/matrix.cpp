// Matrix instructions: ldmatrix, stmatrix, mma.sync, wgmma.
#include <memory>

#include "machine.h"

namespace host {

// --- element types

struct Type {
    string name;
    int bytes;
};
static Type type_of(const string& name) {
    if (name == "f16" || name == "bf16") return {name, 2};
    if (name == "tf32") return {name, 4};
    if (name == "e4m3" || name == "e5m2" || name == "s8" || name == "u8") return {name, 1};
    fault("an MMA of type %s", name.c_str());
}

static bool is_integer(const Type& t) { return t.name == "s8" || t.name == "u8"; }

// Whether one MMA multiplies elements of `a` and of `b`.
static bool meet_in_mma(const Type& a, const Type& b) {
    return a.name == b.name || (a.bytes == 1 && b.bytes == 1 && is_integer(a) == is_integer(b));
}

static float number(const Type& t, const void* p) {
    u16 two = 0;
    u8 one = 0;
    u32 four;
    if (t.bytes == 2) memcpy(&two, p, 2);
    if (t.bytes == 1) memcpy(&one, p, 1);
    if (t.name == "f16") return from_half(two);
    if (t.name == "bf16") return from_brain(two);
    if (t.name == "e4m3" || t.name == "e5m2") return from_float8(one, t.name == "e4m3");
    if (t.name == "s8") return (float)(signed char)one;
    if (t.name == "u8") return (float)one;
    memcpy(&four, p, 4);
    return as<float>(four & 0xffffe000u);  // the tensor core reads the upper 19 bits
}

static vector<float> half_table() {
    vector<float> t(65536);
    for (u32 n = 0; n < 65536; ++n) t[n] = from_half((u16)n);
    return t;
}

// Many elements at once.
static void numbers(const Type& t, const u8* p, int count, float* out) {
    static const vector<float> halves = half_table();
    for (int n = 0; n < count; ++n) {
        if (t.name == "f16") {
            u16 h;
            memcpy(&h, p + 2 * n, 2);
            out[n] = halves[h];
        } else {
            out[n] = number(t, p + t.bytes * n);
        }
    }
}

// --- ldmatrix, stmatrix

static void matrix_move(Frame& f, const Instruction& i) {
    const bool load = i.parts[0] == "ldmatrix";
    const int count = i.parts.at(4) == "x4" ? 4 : i.parts[4] == "x2" ? 2 : i.parts[4] == "x1" ? 1 : 0;
    const bool trans = i.parts.at(5) == "trans";
    const string expected = i.parts[0] + ".sync.aligned.m8n8." + i.parts[4] + (trans ? ".trans" : "") + ".shared.b16";
    if (i.name != expected || count == 0 || (trans && !load)) fault("%s is not known", i.name.c_str());
    meet(f.site, i.name, &f, [&](Warp& w) {
        for (int m = 0; m < count; ++m) {
            u16 rows[8][8];
            for (int r = 0; r < 8; ++r) {
                Frame& from = *(Frame*)w.data[8 * m + r];
                const u32 address = (u32)from.get(i.args[load ? 1 : 0]);
                if (address % 16) fault("%s: a misaligned row", i.name.c_str());
                const Place p = resolve(address, 16, i.name.c_str());
                Thread& t = *from.thread;
                if (load) {
                    read_shared(*p.block, p.offset, 16, t.clock, Proxy::GENERIC, t.now(), i.name.c_str());
                    memcpy(rows[r], p.block->memory + p.offset, 16);
                } else {
                    write_shared(*p.block, p.offset, 16, t.clock, Proxy::GENERIC, t.now(), i.name.c_str());
                    for (int c = 0; c < 4; ++c) {
                        const u32 pair = (u32)((Frame*)w.data[4 * r + c])->get(i.args[1].items.at((size_t)m));
                        memcpy(p.block->memory + p.offset + 4 * c, &pair, 4);
                    }
                }
            }
            if (!load) continue;
            if (i.args[0].items.size() != (size_t)count) fault("%s: %zu results", i.name.c_str(), i.args[0].items.size());
            for (int lane = 0; lane < 32; ++lane) {
                const int r = lane / 4, c = lane % 4 * 2;
                const u32 low = trans ? rows[c][r] : rows[r][c], high = trans ? rows[c + 1][r] : rows[r][c + 1];
                ((Frame*)w.data[lane])->set(i.args[0].items[(size_t)m], low | high << 16);
            }
        }
    });
}

// --- fragments: A is 16 rows x 32 bytes (or 16) of k, four registers; (row, byte of k) of register r of a lane

static void a_place(int lane, int r, int& row, int& byte) {
    row = lane / 4 + 8 * (r % 2);
    byte = lane % 4 * 4 + 16 * (r / 2);
}

template <class ACC> static void multiply(const float* a, const float* b, ACC* d, int columns, int depth) {
    for (int r = 0; r < 16; ++r)
        for (int k = 0; k < depth; ++k) {
            const ACC x = (ACC)a[r * depth + k];
            for (int n = 0; n < columns; ++n) d[r * columns + n] += x * (ACC)b[k * columns + n];
        }
}

// d (16 x columns, bits of float or int) = a b + d; summed in double, rounded once.
static void accumulate(const vector<float>& a, const vector<float>& b, vector<u32>& d, int columns, int depth, bool integer) {
    if (integer) {
        multiply(a.data(), b.data(), (int*)d.data(), columns, depth);
        return;
    }
    vector<double> sum(d.size());
    for (size_t n = 0; n < d.size(); ++n) sum[n] = as<float>(d[n]);
    multiply(a.data(), b.data(), sum.data(), columns, depth);
    for (size_t n = 0; n < d.size(); ++n) d[n] = as<u32>((float)sum[n]);
}

// MMAs of f64, whose terms are added one after the other by fused multiply-adds: m16n8k8, and m8n8k4.
static void mma_f64(Frame& f, const Instruction& i) {
    const string end = ".row.col.f64.f64.f64.f64";
    const bool wide = i.name == "mma.sync.aligned.m16n8k8" + end;
    if (!wide && i.name != "mma.sync.aligned.m8n8k4" + end) fault("%s is not known", i.name.c_str());
    const size_t halves = wide ? 2 : 1;  // of rows, and of terms
    if (i.args.size() != 4 || i.args[0].items.size() != 2 * halves || i.args[1].items.size() != halves * halves ||
        i.args[2].items.size() != halves || i.args[3].items.size() != 2 * halves)
        fault("%s: operands", i.name.c_str());
    meet(f.site, i.name, &f, [&](Warp& w) {
        double a[16][8], b[8][8], d[16][8];
        for (int lane = 0; lane < 32; ++lane) {
            Frame& own = *(Frame*)w.data[lane];
            const int group = lane / 4, member = lane % 4;
            for (size_t r = 0; r < halves * halves; ++r)
                a[group + 8 * (int)(r % halves)][member + 4 * (int)(r / halves)] = as<double>(own.get(i.args[1].items[r]));
            for (size_t r = 0; r < halves; ++r) b[member + 4 * (int)r][group] = as<double>(own.get(i.args[2].items[r]));
            for (size_t r = 0; r < 2 * halves; ++r)
                d[group + 8 * (int)(r / 2)][2 * member + (int)(r % 2)] = as<double>(own.get(i.args[3].items[r]));
        }
        for (size_t m = 0; m < 8 * halves; ++m)
            for (size_t k = 0; k < 4 * halves; ++k)
                for (int n = 0; n < 8; ++n) d[m][n] = fma(a[m][k], b[k][n], d[m][n]);
        for (int lane = 0; lane < 32; ++lane)
            for (size_t r = 0; r < 2 * halves; ++r)
                ((Frame*)w.data[lane])->set(i.args[0].items[r], as<u64>(d[lane / 4 + 8 * (int)(r / 2)][lane % 4 * 2 + (int)(r % 2)]));
    });
}

static void mma(Frame& f, const Instruction& i) {
    const auto& p = i.parts;  // mma sync aligned m16n8k16 row col f32 f16 f16 f32
    if (p.size() != 10) fault("%s is not known", i.name.c_str());
    if (p[7] == "f64") {
        mma_f64(f, i);
        return;
    }
    const Type type = type_of(p[7]), other = type_of(p[8]);
    const bool integer = is_integer(type);
    const string acc = integer ? "s32" : "f32";
    const int k = 32 / type.bytes, per = 4 / type.bytes;
    if (!meet_in_mma(type, other) || i.name != "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col." + acc + "." +
                                                   type.name + "." + other.name + "." + acc)
        fault("%s is not known", i.name.c_str());
    if (i.args.size() != 4 || i.args[0].items.size() != 4 || i.args[1].items.size() != 4 || i.args[2].items.size() != 2 ||
        i.args[3].items.size() != 4)
        fault("%s: operands", i.name.c_str());
    meet(f.site, i.name, &f, [&](Warp& w) {
        vector<float> a((size_t)(16 * k)), b((size_t)(k * 8));
        vector<u32> d(128);
        for (int lane = 0; lane < 32; ++lane) {
            Frame& own = *(Frame*)w.data[lane];
            for (int r = 0; r < 4; ++r) {
                int row, byte;
                a_place(lane, r, row, byte);
                const u32 bits = (u32)own.get(i.args[1].items[(size_t)r]);
                numbers(type, (const u8*)&bits, per, &a[(size_t)(row * k + byte / type.bytes)]);
            }
            for (int r = 0; r < 2; ++r) {
                const u32 bits = (u32)own.get(i.args[2].items[(size_t)r]);
                float some[4];
                numbers(other, (const u8*)&bits, per, some);
                for (int e = 0; e < per; ++e) b[(size_t)((lane % 4 * per + 4 * per * r + e) * 8 + lane / 4)] = some[e];
            }
            for (int r = 0; r < 4; ++r)
                d[(size_t)((lane / 4 + 8 * (r / 2)) * 8 + lane % 4 * 2 + r % 2)] = (u32)own.get(i.args[3].items[(size_t)r]);
        }
        accumulate(a, b, d, 8, k, integer);
        for (int lane = 0; lane < 32; ++lane)
            for (int r = 0; r < 4; ++r)
                ((Frame*)w.data[lane])
                    ->set(i.args[0].items[(size_t)r], d[(size_t)((lane / 4 + 8 * (r / 2)) * 8 + lane % 4 * 2 + r % 2)]);
    });
}

// --- wgmma

// A descriptor (PTX ISA, "Matrix Descriptor Format"): where the 16-byte chunks of an operand are.
struct Descriptor {
    u32 start, leading, stride;
    int width;  // of the swizzle
    explicit Descriptor(u64 d) {
        start = (u32)(d & 0x3fff) << 4;
        leading = (u32)(d >> 16 & 0x3fff) << 4;
        stride = (u32)(d >> 32 & 0x3fff) << 4;
        static const int widths[4] = {0, 128, 64, 32};
        width = widths[d >> 62];
        if (d >> 49 & 7) fault("wgmma: a base offset");
    }
    u32 swizzle(u32 address) const { return width ? address ^ (address >> 7 & (u32)(width / 16 - 1)) << 4 : address; }
    // Chunk `c` (16 bytes along k) of row `row`.
    u32 k_major(u32 row, u32 c) const {
        const u32 at = width ? row % 8 * (u32)width + c * 16 : row % 8 * 16 + c * leading;
        return swizzle(start + at + row / 8 * stride);
    }
    // Chunk `c` (8 elements of 16 bits along m or n) of row `k`.
    u32 mn_major(u32 c, u32 k) const {
        const u32 many = width ? (u32)width / 16 : 1;
        const u32 row = k % 8 * (width ? (u32)width : 16);
        if (!width) return start + c * stride + row + k / 8 * leading;
        return swizzle(start + c % many * 16 + c / many * leading + row + k / 8 * stride);
    }
};

struct Warp::Mma {
    u64 group;
    Type type, other;  // of A and of B
    int columns, depth;
    bool integer, add, done = false;
    bool registers;                       // A comes from registers
    vector<u32> a_chunks, b_chunks;       // offsets in shared memory
    bool a_trans, b_trans;
    vector<const void*> a_places;         // 4 of each lane, null: a_values
    vector<u32> a_values;
    vector<void*> d_places;               // columns / 2 of each lane
    std::shared_ptr<vector<u32>> d;       // 16 x columns, shared by MMAs in flight on the same registers
    Block* block;
};

static vector<float> operand(const Warp::Mma& m, const vector<u32>& chunks, int rows, bool trans, bool as_b) {
    // as_b: (k, n); else (row, k)
    vector<float> out((size_t)(rows * m.depth));
    const int per = 16 / m.type.bytes;
    float some[16];
    for (size_t n = 0; n < chunks.size(); ++n) {
        numbers(as_b ? m.other : m.type, m.block->memory + chunks[n], per, some);
        for (int e = 0; e < per; ++e) {
            const int many = m.depth / per;
            const int row = trans ? (int)n / m.depth * per + e : (int)n / many;
            const int k = trans ? (int)n % m.depth : (int)n % many * per + e;
            out[(size_t)(as_b ? k * rows + row : row * m.depth + k)] = some[e];
        }
    }
    return out;
}

static void compute(Warp::Mma& m) {
    if (m.done) return;
    m.done = true;
    vector<float> a;
    if (m.registers) {
        a.resize((size_t)(16 * m.depth));
        for (int lane = 0; lane < 32; ++lane)
            for (int r = 0; r < 4; ++r) {
                int row, byte;
                a_place(lane, r, row, byte);
                u32 bits = m.a_values[(size_t)(4 * lane + r)];
                if (const void* p = m.a_places[(size_t)(4 * lane + r)]) memcpy(&bits, p, 4);
                numbers(m.type, (const u8*)&bits, 4 / m.type.bytes, &a[(size_t)(row * m.depth + byte / m.type.bytes)]);
            }
    } else {
        a = operand(m, m.a_chunks, 16, m.a_trans, false);
    }
    const vector<float> b = operand(m, m.b_chunks, m.columns, m.b_trans, true);
    if (!m.add) std::fill(m.d->begin(), m.d->end(), 0);
    accumulate(a, b, *m.d, m.columns, m.depth, m.integer);
}

// Place in the 16 x columns accumulator of register r of a lane.
static size_t d_index(int lane, int r, int columns) {
    return (size_t)((lane / 4 + 8 * (r / 2 % 2)) * columns + r / 4 * 8 + lane % 4 * 2 + r % 2);
}

void finish_mmas(Warp& w, u64 left) {
    const u64 upto = w.groups < left ? 0 : w.groups - left;
    while (!w.pending.empty() && w.pending.front()->group <= upto) {
        Warp::Mma* m = w.pending.front();
        w.pending.pop_front();
        compute(*m);
        const int count = m->columns / 2;
        for (int lane = 0; lane < 32; ++lane) {
            const Thread& t = *w.lanes[lane];
            for (int r = 0; r < count; ++r) {
                void* p = m->d_places[(size_t)(lane * count + r)];
                Register* own = register_of(t, p);
                if (own && --own->result) continue;
                memcpy(p, &(*m->d)[d_index(lane, r, m->columns)], 4);
            }
            for (int r = 0; r < 4 && m->registers; ++r)
                if (Register* own = register_of(t, m->a_places[(size_t)(4 * lane + r)])) --own->operand;
        }
        delete m;
    }
    if (upto > w.completed) w.completed = upto;
}

static vector<u32> chunks(const Descriptor& d, u32 first_row, u32 rows, u32 depth_bytes, u32 depth, bool trans, Frame& f,
                          u32 mark) {
    vector<u32> out;
    auto add = [&](u32 address) {
        const Place p = resolve(address, 16, "wgmma");
        read_shared(*p.block, p.offset, 16, f.thread->clock, Proxy::ASYNC, mark, "wgmma");
        out.push_back(p.offset);
    };
    if (trans) {
        for (u32 c = first_row / 8; c < (first_row + rows) / 8; ++c)
            for (u32 k = 0; k < depth; ++k) add(d.mn_major(c, k));
    } else {
        for (u32 r = first_row; r < first_row + rows; ++r)
            for (u32 c = 0; c < depth_bytes / 16; ++c) add(d.k_major(r, c));
    }
    return out;
}

static void check_registers(Frame& f, const Argument& list, bool result) {
    for (const Argument& a : list.items) {
        Register* r = register_of(*f.thread, f.place[a.number]);
        if (!r) continue;
        if ((result ? r->used : r->written) >= f.thread->fences) fault("wgmma: a register was used after the last wgmma.fence");
        if (!result && r->result) fault("wgmma: an operand is the result of an MMA in flight");
        if (result && r->operand) fault("wgmma: a result is the operand of an MMA in flight");
    }
}

static int flag(const Frame& f, const Instruction& i, size_t n) {
    const u64 x = f.get(i.args.at(n));
    if (x > 1) fault("wgmma: a flag of %llu", x);
    return (int)x;
}

static void wgmma(Frame& f, const Instruction& i) {
    const auto& p = i.parts;  // wgmma mma_async sync aligned m64n128k16 f32 f16 f16
    if (p.size() != 8) fault("%s is not known", i.name.c_str());
    const Type type = type_of(p[6]), other = type_of(p[7]);
    const int depth = 32 / type.bytes;
    int columns = 0, k = 0;
    char end = 0;
    const bool integer = is_integer(type);
    if (sscanf(p[4].c_str(), "m64n%dk%d%c", &columns, &k, &end) != 2 || k != depth || columns % 8 || columns < 8 || columns > 256 ||
        p[5] != (integer ? "s32" : "f32") || !meet_in_mma(type, other) || p[2] != "sync" || p[3] != "aligned")
        fault("%s is not known", i.name.c_str());
    if (integer && columns % 16 && columns != 8 && columns != 24) fault("%s is not known", i.name.c_str());
    pause_sometimes();
    meet(f.site, i.name, &f, [&](Warp& w) {
        const size_t count = (size_t)columns / 2;
        if (w.component == 0) w.component = new_component(*f.thread->block->cluster);
        const u32 mark = epoch(w.component, (u32)w.groups + 1);
        auto* m = new Warp::Mma{};
        m->group = w.groups + 1;
        m->type = type;
        m->other = other;
        m->columns = columns;
        m->depth = depth;
        m->integer = integer;
        m->registers = i.args.at(1).kind == Argument::LIST;
        m->block = f.thread->block;
        if (i.args[0].items.size() != count) fault("%s: %zu accumulators", i.name.c_str(), i.args[0].items.size());
        if (m->registers && i.args[1].items.size() != 4) fault("%s: %zu operand registers", i.name.c_str(), i.args[1].items.size());
        const size_t transposes = type.bytes == 2 ? (m->registers ? 1u : 2u) : 0u;
        if (i.args.size() != 4 + (integer ? 0u : 2u) + transposes) fault("%s: %zu operands", i.name.c_str(), i.args.size());
        if (!integer && (flag(f, i, 4) != 1 || flag(f, i, 5) != 1)) fault("wgmma with a negated operand");
        m->a_trans = transposes == 2 && flag(f, i, 6);
        m->b_trans = transposes && flag(f, i, 5 + transposes);
        m->add = flag(f, i, 3);
        const u64 a = m->registers ? 0 : f.get(i.args[1]), b = f.get(i.args[2]);
        const Register* first = register_of(*f.thread, f.place[i.args[0].items[0].number]);
        const bool chained = first && first->result;
        m->d = chained ? w.pending.back()->d : std::make_shared<vector<u32>>((size_t)(16 * columns));
        if (chained)
            for (auto* other : w.pending)
                if (other->d_places[(size_t)f.thread->lane * (other->columns / 2)] == f.place[i.args[0].items[0].number]) m->d = other->d;
        for (int lane = 0; lane < 32; ++lane) {
            Frame& own = *(Frame*)w.data[lane];
            if (own.thread->fences == 1) fault("wgmma without wgmma.fence");
            if ((m->registers ? 0 : own.get(i.args[1])) != a || own.get(i.args[2]) != b || (own.get(i.args[3]) != 0) != m->add)
                fault("wgmma: lanes differ in descriptors or predicate");
            check_registers(own, i.args[0], true);
            if (m->registers) check_registers(own, i.args[1], false);
            for (size_t r = 0; r < count; ++r) {
                void* place = own.place[i.args[0].items[r].number];
                Register* reg = register_of(*own.thread, place);
                if (reg && (reg->result != 0) != chained) fault("wgmma: some accumulators are those of another MMA in flight");
                m->d_places.push_back(place);
                if (!chained) memcpy(&(*m->d)[d_index(lane, (int)r, columns)], place, 4);
                if (reg) ++reg->result;
                const u32 poison = POISON;
                memcpy(place, &poison, 4);
            }
            for (size_t r = 0; r < 4 && m->registers; ++r) {
                const Argument& x = i.args[1].items[r];
                m->a_places.push_back(own.place[x.number]);
                m->a_values.push_back((u32)own.get(x));
                if (Register* reg = register_of(*own.thread, own.place[x.number])) ++reg->operand;
            }
        }
        if (!m->registers)
            m->a_chunks = chunks(Descriptor(a), f.thread->id / 32 % 4 * 16, 16, 32, (u32)depth, m->a_trans, f, mark);
        m->b_chunks = chunks(Descriptor(b), 0, (u32)columns, 32, (u32)depth, m->b_trans, f, mark);
        w.trace = w.trace * 1000003 + a * 7 + b * 3 + (u64)columns + m->add;
        w.pending.push_back(m);
        if (gpu.policy == 0) compute(*m);
    });
}

static void wgmma_fence(Frame& f, const Instruction& i) {
    meet(f.site, i.name, &f, [](Warp& w) {
        for (Thread* t : w.lanes) ++t->fences;
    });
}

static void wgmma_commit(Frame& f, const Instruction& i) {
    meet(f.site, i.name, &f, [](Warp& w) { ++w.groups; });
}

static void wgmma_wait(Frame& f, const Instruction& i) {
    const u64 left = f.get(i.args[0]);
    if (left > 7) fault("wgmma.wait_group %llu", left);
    meet(f.site, i.name, &f, [left](Warp& w) {
        finish_mmas(w, left);
        if (w.component == 0) return;
        for (Thread* t : w.lanes) t->clock.seen[w.component] = t->clock.proxied[w.component] = (u32)w.completed;
    });
}

void matrix_handlers(std::map<string, Handler>& table) {
    table["ldmatrix.*"] = table["stmatrix.*"] = matrix_move;
    table["mma.*"] = mma;
    table["wgmma.mma_async.*"] = wgmma;
    table["wgmma.fence.sync.aligned"] = wgmma_fence;
    table["wgmma.commit_group.sync.aligned"] = wgmma_commit;
    table["wgmma.wait_group.sync.aligned"] = wgmma_wait;
}

}  // namespace host
