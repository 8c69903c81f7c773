// A stand-in for XLA that calls a handler: buffers at addresses of its own choice, a stream, and two attributes.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>

struct XLA_FFI_Error {
    char text[512];
};

static XLA_FFI_Error* create(XLA_FFI_Error_Create_Args* a) {
    XLA_FFI_Error* made = new XLA_FFI_Error;
    snprintf(made->text, sizeof made->text, "%d %s", a->errc, a->message);
    return made;
}
static XLA_FFI_Error* stream(XLA_FFI_Stream_Get_Args* a) {
    a->stream = reinterpret_cast<void*>(static_cast<size_t>(77));
    return nullptr;
}

template <class T>
static T sized(size_t size) {
    T made;
    memset(&made, 0, sizeof made);
    made.struct_size = size;
    return made;
}
#define SIZED(T) sized<T>(T##_STRUCT_SIZE)

int main(int count, char** words) {
    const char* wrong = words[2];
    void* library = dlopen(words[1], RTLD_NOW);
    if (!library) return printf("%s\n", dlerror()), 1;
    XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*);
    *reinterpret_cast<void**>(&handler) = dlsym(library, "k_jax");
    size_t (*room)(int);
    *reinterpret_cast<void**>(&room) = dlsym(library, "k_workspace");
    const int64_t rows = 24;
    int64_t shapes[4][2] = {{rows, 128}, {256, 128}, {rows, 256}, {static_cast<int64_t>(room(rows)), 0}};
    const int ranks[4] = {2, 2, 2, 1};
    XLA_FFI_DataType types[4] = {XLA_FFI_DataType_F16, XLA_FFI_DataType_F16, XLA_FFI_DataType_F32, XLA_FFI_DataType_U8};
    if (!strcmp(wrong, "type")) types[1] = XLA_FFI_DataType_BF16;
    if (!strcmp(wrong, "shape")) shapes[2][1] = 128;
    XLA_FFI_Buffer buffers[4];
    void* all[4];
    for (int n = 0; n < 4; ++n) {
        buffers[n] = SIZED(XLA_FFI_Buffer);
        buffers[n].dtype = types[n];
        buffers[n].data = reinterpret_cast<void*>(static_cast<size_t>(4096) << 4 * n);
        buffers[n].rank = ranks[n];
        buffers[n].dims = shapes[n];
        all[n] = &buffers[n];
    }
    if (!strcmp(wrong, "rank")) buffers[1].rank = 1;
    XLA_FFI_ArgType arg_types[2] = {XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER};
    XLA_FFI_RetType ret_types[2] = {XLA_FFI_RetType_BUFFER, XLA_FFI_RetType_BUFFER};
    float code = 2.5f;
    int32_t flag = 7;
    XLA_FFI_Scalar scalars[2] = {{XLA_FFI_DataType_F32, &code}, {XLA_FFI_DataType_S32, &flag}};
    void* attributes[2] = {&scalars[0], &scalars[1]};
    XLA_FFI_AttrType attribute_types[2] = {XLA_FFI_AttrType_SCALAR, XLA_FFI_AttrType_SCALAR};
    XLA_FFI_ByteSpan spans[2] = {{"code", 4}, {"flag", 4}};
    XLA_FFI_ByteSpan* names[2] = {&spans[0], &spans[1]};
    XLA_FFI_Api api = SIZED(XLA_FFI_Api);
    api.api_version = SIZED(XLA_FFI_Api_Version);
    api.api_version.major_version = XLA_FFI_API_MAJOR;
    api.api_version.minor_version = XLA_FFI_API_MINOR;
    api.XLA_FFI_Error_Create = create;
    api.XLA_FFI_Stream_Get = stream;
    XLA_FFI_CallFrame frame = SIZED(XLA_FFI_CallFrame);
    frame.api = &api;
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args = SIZED(XLA_FFI_Args);
    frame.args.size = 2, frame.args.types = arg_types, frame.args.args = all;
    frame.rets = SIZED(XLA_FFI_Rets);
    frame.rets.size = strcmp(wrong, "count") ? 2 : 1, frame.rets.types = ret_types, frame.rets.rets = all + 2;
    frame.attrs = SIZED(XLA_FFI_Attrs);
    frame.attrs.size = 2, frame.attrs.types = attribute_types, frame.attrs.names = names, frame.attrs.attrs = attributes;
    XLA_FFI_Error* error = handler(&frame);
    printf("%s\n", error ? error->text : "done");
    return count - 3;
}
