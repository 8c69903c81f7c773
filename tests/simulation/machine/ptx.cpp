// Inline PTX: the text of each asm statement is parsed once and interpreted. An unknown mnemonic is a fault.
#include <cmath>

#include "machine.h"

namespace host {

struct Program {
    vector<Instruction> code;
    vector<char> kinds;        // constraint letter of each operand
    vector<bool> written, read;
    int named = 0;
};

// --- parsing

struct Parser {
    const char* p;
    Program& out;
    std::map<string, int> names, labels;
    vector<std::pair<int, string>> branches;

    void space() {
        while (*p == ' ' || *p == '\n' || *p == '\t') ++p;
    }
    string word() {
        space();
        const char* start = p;
        while (isalnum(*p) || *p == '_' || *p == '.' || *p == '$' || (*p == ':' && p[1] == ':') || (*p == ':' && p[-1] == ':')) ++p;
        return string(start, p);
    }
    [[noreturn]] void wrong(const string& why) { fault("PTX: %s near \"%.40s\"", why.c_str(), p); }

    Argument argument() {
        space();
        Argument a;
        if (*p == '%') {
            a.kind = Argument::OPERAND;
            a.number = (int)strtol(p + 1, (char**)&p, 10);
            if (a.number >= (int)out.kinds.size()) wrong("an operand that the statement does not have");
        } else if (*p == '{' || *p == '[') {
            const char close = *p == '{' ? '}' : ']';
            a.kind = *p == '{' ? Argument::LIST : Argument::MEMORY;
            ++p;
            while (true) {
                a.items.push_back(argument());
                space();
                if (*p == ',') { ++p; continue; }
                if (*p != close) wrong("a list without an end");
                ++p;
                break;
            }
        } else if (isdigit(*p) || *p == '-') {
            a.kind = Argument::NUMBER;
            a.value = (u64)strtoll(p, (char**)&p, 0);
        } else {
            const string name = word();
            if (name == "_") return a;
            const auto found = names.find(name);
            if (found == names.end()) wrong("an unknown name " + name);
            a.kind = Argument::NAME;
            a.number = found->second;
        }
        return a;
    }

    void declare() {
        space();
        if (*p != '.') wrong("a declaration without a type");
        word();
        const string name = word();
        names[name] = out.named++;
        if (out.named > 8) wrong("too many registers");
    }

    void statement() {
        Instruction i;
        if (*p == '@') {
            ++p;
            if (*p == '!') ++p, i.negated = true;
            const string name = word();
            if (!names.count(name)) wrong("an unknown predicate " + name);
            i.predicate = names[name];
        }
        i.name = word();
        if (i.name.empty()) wrong("no mnemonic");
        if (i.name == ".reg") { declare(); return end(); }
        space();
        if (*p == ':') {
            ++p;
            labels[i.name] = (int)out.code.size();
            return;
        }
        if (i.name == "bra") {
            branches.push_back({(int)out.code.size(), word()});
        } else {
            for (space(); *p != ';' && *p != 0; space()) {
                i.args.push_back(argument());
                space();
                if (*p == ',') ++p;
            }
            string part;
            for (char c : i.name + ".") {
                if (c == '.') i.parts.push_back(part), part.clear();
                else part += c;
            }
            i.run = find_handler(i);
        }
        out.code.push_back(i);
        end();
    }
    void end() {
        space();
        if (*p != ';') wrong("a statement without a semicolon");
        ++p;
    }
    void all() {
        for (space(); *p; space()) {
            if (*p == '{' || *p == '}') ++p;
            else statement();
        }
        for (const auto& [at, label] : branches) {
            if (!labels.count(label)) wrong("no label " + label);
            out.code[(size_t)at].target = labels[label];
        }
    }
};

static Program* parse(Site* site) {
    auto* made = new Program;
    bool is_out = false, is_both = false;
    for (const char* c = site->constraints; *c; ++c) {
        if (*c == ',') { is_out = is_both = false; continue; }
        if (*c == '=') is_out = true;
        else if (*c == '+') is_out = is_both = true;
        else if (*c != '&') {
            made->kinds.push_back(*c);
            made->written.push_back(is_out);
            made->read.push_back(!is_out || is_both);
        }
    }
    if (made->kinds.size() > 320) fault("too many operands");
    Parser parser{site->text, *made, {}, {}, {}};
    parser.all();
    return made;
}

// --- execution

u64 Frame::get(const Argument& a) const {
    switch (a.kind) {
        case Argument::NUMBER: return a.value;
        case Argument::NAME: return named[a.number];
        case Argument::OPERAND: {
            if (!site->program->written[(size_t)a.number]) return value[a.number];
            u64 out = 0;
            memcpy(&out, place[a.number], bytes[a.number]);
            return out;
        }
        case Argument::MEMORY: return get(a.items[0]);
        default: fault("PTX: a list or a sink is read");
    }
}

void Frame::set(const Argument& a, u64 bits) {
    if (a.kind == Argument::NAME) named[a.number] = bits;
    else if (a.kind == Argument::OPERAND) {
        if (!site->program->written[(size_t)a.number]) fault("PTX: an input operand is written");
        memcpy(place[a.number], &bits, bytes[a.number]);
    } else if (a.kind != Argument::SINK) {
        fault("PTX: a result that is no register");
    }
}

void execute(Site* site, ...) {
    if (!gpu.current) fault("a kernel's instruction outside of a launch");
    Thread& t = self();
    if (!site->text[0]) return;  // a fence for the compiler
    if (!site->program) site->program = parse(site);
    const Program& program = *site->program;
    Frame f;
    f.thread = &t;
    f.site = site;
    va_list list;
    va_start(list, site);
    for (size_t n = 0; n < program.kinds.size(); ++n) {
        const char kind = program.kinds[n];
        f.bytes[n] = kind == 'h' ? 2 : kind == 'l' || kind == 'd' ? 8 : 4;
        f.place[n] = va_arg(list, void*);
        f.value[n] = program.written[n] ? 0 : va_arg(list, u64);
    }
    va_end(list);
    t.site = site;
    int steps = 0;
    for (int at = 0; at < (int)program.code.size();) {
        const Instruction& i = program.code[(size_t)at];
        f.next = at + 1;
        if (i.predicate < 0 || (f.named[i.predicate] != 0) != i.negated) {
            if (i.target >= 0 || i.name == "bra") f.next = i.target;
            else i.run(f, i);
        }
        at = f.next;
        if (++steps > 100000) fault("PTX: an asm statement does not end");
    }
}

Handler find_handler(const Instruction& i) {
    static std::map<string, Handler> table;
    if (table.empty()) {
        scalar_handlers(table);
        sync_handlers(table);
        copy_handlers(table);
        matrix_handlers(table);
    }
    const auto exact = table.find(i.name);
    if (exact != table.end()) return exact->second;
    for (string name = i.name; name.rfind('.') != string::npos;) {  // a family, whose handler reads the other parts
        name.resize(name.rfind('.'));
        const auto family = table.find(name + ".*");
        if (family != table.end()) return family->second;
    }
    fault("PTX: the instruction %s is not known", i.name.c_str());
}

// --- numbers

float from_half(u16 bits) {
    const int sign = bits >> 15, exponent = bits >> 10 & 31, fraction = bits & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent ? std::ldexp((float)(fraction + 1024), exponent - 25) : std::ldexp((float)fraction, -24);
    return sign ? -x : x;
}

float from_brain(u16 bits) { return as<float>((u32)bits << 16); }

u16 to_brain(float x) {
    u32 b = as<u32>(x);
    if (x != x) return 0x7fff;
    b += 0x7fff + (b >> 16 & 1);
    return (u16)(b >> 16);
}

// To nearest, ties to even, `fraction` bits, least normal exponent `least`; denormals are kept.
static float round_bits(float x, int fraction, int least) {
    if (x == 0 || std::isinf(x) || x != x) return x;
    int e;
    std::frexp(x, &e);
    const int step = (e - 1 < least ? least : e - 1) - fraction;
    return (float)std::ldexp(std::nearbyint(std::ldexp((double)x, -step)), step);
}

u16 to_half(float x) {
    if (x != x) return 0x7fff;
    const float y = round_bits(x, 10, -14);
    const u16 sign = std::signbit(x) ? 0x8000 : 0;
    if (std::fabs(y) >= 65536.0f) return sign | 0x7c00;
    const float a = std::fabs(y);
    if (a < std::ldexp(1.0f, -14)) return sign | (u16)std::ldexp(a, 24);
    int e;
    const float m = std::frexp(a, &e);
    return sign | (u16)((e + 14) << 10) | (u16)((u32)std::ldexp(m, 11) & 1023);
}

float from_float8(u8 bits, bool e4m3) {
    if (!e4m3) return from_half((u16)(bits << 8));
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    float x = (bits & 127) == 127 ? NAN : exponent ? std::ldexp((float)(fraction + 8), exponent - 10)
                                                   : std::ldexp((float)fraction, -9);
    return bits >> 7 ? -x : x;
}

static u8 to_float8(float x, bool e4m3) {  // with satfinite
    const u8 sign = std::signbit(x) ? 0x80 : 0;
    if (x != x) return 0x7f;
    const float largest = e4m3 ? 448.0f : 57344.0f;
    float a = std::fabs(round_bits(x, e4m3 ? 3 : 2, e4m3 ? -6 : -14));
    if (a > largest) a = largest;
    for (int b = 0; b < 127; ++b)
        if (from_float8((u8)b, e4m3) == a) return sign | (u8)b;
    fault("no such 8-bit number");
}

static float flushed(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }

static float nan_aware(float a, float b, bool largest) {
    if (a != a || b != b) return as<float>(0x7fffffffu);
    if (a == b) return std::signbit(a) == largest ? b : a;
    return (a < b) == largest ? b : a;
}

template <float F(float)> static void unary(Frame& f, const Instruction& i) { f.set(i.args[0], as<u32>(F(f.real(i.args[1])))); }
static float exp2_of(float x) { return flushed(exp2f(flushed(x))); }
static float rcp_of(float x) { return flushed(1.0f / flushed(x)); }
static float rsqrt_of(float x) { return flushed(1.0f / sqrtf(flushed(x))); }
static float sqrt_of(float x) { return sqrtf(x); }
static float log2_of(float x) { return log2f(x); }
static float log2_of_normal(float x) { return log2f(flushed(x)); }
static float tanh_of(float x) { return tanhf(x); }
static float tf32_of(float x) {  // to nearest, ties away from zero
    return std::isfinite(x) ? as<float>((as<u32>(x) + 0x1000u) & 0xffffe000u) : x;
}
template <u16 F(float)> static void narrow(Frame& f, const Instruction& i) { f.set(i.args[0], F(f.real(i.args[1]))); }
template <u16 F(float)> static void pair(Frame& f, const Instruction& i) {  // the first source is the upper half
    f.set(i.args[0], (u32)F(f.real(i.args[1])) << 16 | F(f.real(i.args[2])));
}
static void widen(Frame& f, const Instruction& i) { f.set(i.args[0], as<u32>(from_half((u16)f.get(i.args[1])))); }
template <u16 TO(float), float FROM(u16)> static void fma_pair(Frame& f, const Instruction& i) {
    u32 out = 0;
    for (int half = 0; half < 2; ++half) {
        double x[3];
        for (int k = 0; k < 3; ++k) x[k] = FROM((u16)(f.get(i.args[(size_t)k + 1]) >> (16 * half)));
        out |= (u32)TO((float)(x[0] * x[1] + x[2])) << (16 * half);
    }
    f.set(i.args[0], out);
}
template <bool E4M3> static void widen8(Frame& f, const Instruction& i) {
    const u64 x = f.get(i.args[1]);
    f.set(i.args[0], (u32)to_half(from_float8((u8)(x >> 8), E4M3)) << 16 | to_half(from_float8((u8)x, E4M3)));
}
template <bool E4M3> static void narrow8(Frame& f, const Instruction& i) {
    f.set(i.args[0], (u64)to_float8(f.real(i.args[1]), E4M3) << 8 | to_float8(f.real(i.args[2]), E4M3));
}
template <bool LARGEST> static void extreme(Frame& f, const Instruction& i) {
    f.set(i.args[0], as<u32>(nan_aware(f.real(i.args[1]), f.real(i.args[2]), LARGEST)));
}
static void divide(Frame& f, const Instruction& i) { f.set(i.args[0], as<u32>(f.real(i.args[1]) / f.real(i.args[2]))); }
static void differs(Frame& f, const Instruction& i) { f.set(i.args[0], (u32)f.get(i.args[1]) != (u32)f.get(i.args[2])); }
static void move(Frame& f, const Instruction& i) { f.set(i.args[0], f.get(i.args[1])); }

template <int BYTES, int WORDS> static void load_global(Frame& f, const Instruction& i) {
    const u8* p = (const u8*)f.get(i.args[1]);
    if ((size_t)p % (BYTES * WORDS)) misaligned(p, BYTES * WORDS);
    read_global(p, BYTES * WORDS, *f.thread, i.name.c_str());
    for (int n = 0; n < WORDS; ++n) {
        u32 word = 0;
        memcpy(&word, p + BYTES * n, BYTES);
        f.set(WORDS > 1 ? i.args[0].items.at((size_t)n) : i.args[0], word);
    }
}

void scalar_handlers(std::map<string, Handler>& table) {
    table["ex2.approx.ftz.f32"] = unary<exp2_of>;
    table["rcp.approx.ftz.f32"] = unary<rcp_of>;
    table["rsqrt.approx.ftz.f32"] = unary<rsqrt_of>;
    table["sqrt.approx.f32"] = unary<sqrt_of>;
    table["lg2.approx.f32"] = unary<log2_of>;
    table["lg2.approx.ftz.f32"] = unary<log2_of_normal>;
    table["tanh.approx.f32"] = unary<tanh_of>;
    table["cvt.rna.tf32.f32"] = unary<tf32_of>;
    table["div.full.f32"] = divide;
    table["max.NaN.f32"] = extreme<true>;
    table["min.NaN.f32"] = extreme<false>;
    table["cvt.f32.f16"] = widen;
    table["cvt.rn.f16.f32"] = narrow<to_half>;
    table["cvt.rn.bf16.f32"] = narrow<to_brain>;
    table["cvt.rn.f16x2.f32"] = pair<to_half>;
    table["cvt.rn.bf16x2.f32"] = pair<to_brain>;
    table["cvt.rn.f16x2.e4m3x2"] = widen8<true>;
    table["cvt.rn.f16x2.e5m2x2"] = widen8<false>;
    table["cvt.rn.satfinite.e4m3x2.f32"] = narrow8<true>;
    table["cvt.rn.satfinite.e5m2x2.f32"] = narrow8<false>;
    table["fma.rn.f16x2"] = fma_pair<to_half, from_half>;
    table["fma.rn.bf16x2"] = fma_pair<to_brain, from_brain>;
    table["setp.ne.u32"] = table["setp.ne.b32"] = differs;
    table["mov.u32"] = table["mov.b32"] = move;
    table["ld.global.nc.u8"] = load_global<1, 1>;
    table["ld.global.nc.u16"] = load_global<2, 1>;
    table["ld.global.nc.u32"] = load_global<4, 1>;
    table["ld.global.nc.v2.u32"] = load_global<4, 2>;
    table["ld.global.nc.v4.u32"] = load_global<4, 4>;
}

}  // namespace host
