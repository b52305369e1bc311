/* Loops over the records of a batch. sunshower/record_loops.py says what each function does, and what does
   the same without this module.

   A function that meets a value it does not handle returns None, and has changed nothing: its
   caller then takes the way in Python, which also raises the error if there is one. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static int
check_arguments(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, given);
    return -1;
}

static int
check_list(PyObject *object)
{
    if (PyList_CheckExact(object))
        return 0;
    PyErr_Format(PyExc_TypeError, "a list is needed, not %.100s", Py_TYPE(object)->tp_name);
    return -1;
}

static int
check_type(PyObject *object)
{
    if (PyType_Check(object))
        return 0;
    PyErr_Format(PyExc_TypeError, "a type is needed, not %.100s", Py_TYPE(object)->tp_name);
    return -1;
}

/* The exception that is set, with its traceback; it is no longer set. */
static PyObject *
take_exception(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *
call_with(PyObject *function, PyObject *argument)
{
    PyObject *arguments[2] = {NULL, argument};
    return PyObject_Vectorcall(function, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* ---- calls of user code ----------------------------------------------------------------------- */

static int
append_length(PyObject *ends, PyObject *outputs)
{
    PyObject *end = PyLong_FromSsize_t(PyList_GET_SIZE(outputs));
    int failed = end == NULL || PyList_Append(ends, end) < 0;
    Py_XDECREF(end);
    return failed ? -1 : 0;
}

static inline int
fits(PyObject *row, PyTypeObject *kind, Py_ssize_t width)
{
    return Py_TYPE(row) == kind && (kind != &PyTuple_Type || PyTuple_GET_SIZE(row) == width);
}

/* Appends the rows of an iterator until there are `most` outputs. -1: it has raised. */
static int
append_rows(PyObject *iterator, PyObject *outputs, Py_ssize_t most, PyTypeObject *kind,
            Py_ssize_t width, int *all_fit)
{
    iternextfunc next = Py_TYPE(iterator)->tp_iternext;
    while (PyList_GET_SIZE(outputs) < most) {
        PyObject *row = next(iterator);
        if (row == NULL) {
            if (!PyErr_Occurred())
                return 0;
            if (!PyErr_ExceptionMatches(PyExc_StopIteration))
                return -1;
            PyErr_Clear();
            return 0;
        }
        *all_fit &= fits(row, kind, width);
        int failed = PyList_Append(outputs, row);
        Py_DECREF(row);
        if (failed < 0)
            return -1;
    }
    return 0;
}

static PyObject *
expand(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("expand", count, 7) < 0)
        return NULL;
    PyObject *function = arguments[0], *records = arguments[1], *outputs = arguments[5];
    PyObject *ends = arguments[6], *rest = NULL, *error = NULL;
    Py_ssize_t most = PyLong_AsSsize_t(arguments[2]), width = PyLong_AsSsize_t(arguments[4]);
    if (PyErr_Occurred() || check_list(records) < 0 || check_type(arguments[3]) < 0 ||
        check_list(outputs) < 0 || check_list(ends) < 0)
        return NULL;
    PyTypeObject *kind = (PyTypeObject *)arguments[3];
    int all_fit = 1;
    while (PyList_GET_SIZE(ends) < PyList_GET_SIZE(records)) {
        Py_ssize_t start = PyList_GET_SIZE(outputs);
        PyObject *record = Py_NewRef(PyList_GET_ITEM(records, PyList_GET_SIZE(ends)));
        PyObject *produced = call_with(function, record), *iterator = NULL;
        Py_DECREF(record);
        if (produced != NULL) {
            iterator = PyObject_GetIter(produced);
            Py_DECREF(produced);
        }
        if (iterator == NULL || append_rows(iterator, outputs, most, kind, width, &all_fit) < 0) {
            Py_XDECREF(iterator);
            error = take_exception();
            if (PyList_SetSlice(outputs, start, PyList_GET_SIZE(outputs), NULL) < 0) {
                Py_DECREF(error);
                return NULL;
            }
            break;
        }
        if (append_length(ends, outputs) < 0) {
            Py_DECREF(iterator);
            return NULL;
        }
        if (PyList_GET_SIZE(outputs) >= most) {
            rest = iterator;
            break;
        }
        Py_DECREF(iterator);
    }
    return Py_BuildValue("NNN", PyBool_FromLong(all_fit), rest ? rest : Py_NewRef(Py_None),
                         error ? error : Py_NewRef(Py_None));
}

static PyObject *
each(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("each", count, 3) < 0 || check_list(arguments[1]) < 0)
        return NULL;
    PyObject *function = arguments[0], *records = arguments[1];
    Py_ssize_t index = PyLong_AsSsize_t(arguments[2]);
    if (index < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the index is below zero");
        return NULL;
    }
    for (; index < PyList_GET_SIZE(records); index++) {
        PyObject *record = Py_NewRef(PyList_GET_ITEM(records, index));
        PyObject *produced = call_with(function, record);
        Py_DECREF(record);
        if (produced == NULL)
            return Py_BuildValue("nON", index, Py_None, take_exception());
        if (produced != Py_None)
            return Py_BuildValue("nNO", index, produced, Py_None);
        Py_DECREF(produced);
    }
    return Py_BuildValue("nOO", index, Py_None, Py_None);
}

/* ---- routing ----------------------------------------------------------------------------------- */

static uint32_t crc_of_byte[8][256]; /* [k]: of a byte that k zero bytes follow */

static void
fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
        crc_of_byte[0][byte] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_of_byte[zeros - 1][byte];
            crc_of_byte[zeros][byte] = crc_of_byte[0][crc & 0xff] ^ (crc >> 8);
        }
}

/* The CRC of zlib.crc32, eight bytes at a time. */
static uint32_t
crc32_of(const unsigned char *bytes, Py_ssize_t length)
{
    uint32_t crc = 0xffffffffu;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                              (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
        crc = crc_of_byte[7][low & 0xff] ^ crc_of_byte[6][low >> 8 & 0xff] ^
              crc_of_byte[5][low >> 16 & 0xff] ^ crc_of_byte[4][low >> 24] ^
              crc_of_byte[3][bytes[4]] ^ crc_of_byte[2][bytes[5]] ^ crc_of_byte[1][bytes[6]] ^
              crc_of_byte[0][bytes[7]];
    }
    for (; length > 0; bytes++, length--)
        crc = crc_of_byte[0][(crc ^ *bytes) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static PyObject *
choose(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("choose", count, 5) < 0 || check_list(arguments[0]) < 0)
        return NULL;
    PyObject *rows = arguments[0], *table = arguments[2], *find = arguments[3];
    Py_ssize_t place = PyLong_AsSsize_t(arguments[1]), targets = PyLong_AsSsize_t(arguments[4]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyDict_Check(table) || place < 0 || targets < 1 || targets > 256) {
        PyErr_SetString(PyExc_ValueError, "choose needs a dict, a field, and 1 to 256 targets");
        return NULL;
    }
    Py_ssize_t length = PyList_GET_SIZE(rows);
    PyObject *chosen = PyBytes_FromStringAndSize(NULL, length);
    if (chosen == NULL)
        return NULL;
    unsigned char *target = (unsigned char *)PyBytes_AS_STRING(chosen);
    for (Py_ssize_t i = 0; i < length; i++) {
        /* `find` may run code of a key, so the list may have changed. */
        PyObject *row = i < PyList_GET_SIZE(rows) ? PyList_GET_ITEM(rows, i) : NULL;
        if (row == NULL || !PyTuple_Check(row) || place >= PyTuple_GET_SIZE(row)) {
            PyErr_SetString(PyExc_IndexError, "tuple index out of range");
            goto failed;
        }
        PyObject *key = PyTuple_GET_ITEM(row, place);
        if (PyUnicode_CheckExact(key) && PyUnicode_IS_COMPACT_ASCII(key)) {
            target[i] = (unsigned char)(crc32_of(PyUnicode_DATA(key), PyUnicode_GET_LENGTH(key)) %
                                        (uint32_t)targets);
            continue;
        }
        Py_INCREF(key);
        PyObject *index = Py_XNewRef(PyDict_GetItemWithError(table, key));
        if (index == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
            PyErr_Clear(); /* a key that Python cannot hash */
            index = call_with(find, key);
        }
        Py_DECREF(key);
        if (index == NULL)
            goto failed;
        long number = PyLong_AsLong(index);
        Py_DECREF(index);
        if (number < 0 || number >= targets) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a key has no such target");
            goto failed;
        }
        target[i] = (unsigned char)number;
    }
    return chosen;
failed:
    Py_DECREF(chosen);
    return NULL;
}

static PyObject *
plain_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("plain_keys", count, 2) < 0 || check_list(arguments[0]) < 0)
        return NULL;
    PyObject *rows = arguments[0];
    Py_ssize_t place = PyLong_AsSsize_t(arguments[1]);
    if (place == -1 && PyErr_Occurred())
        return NULL;
    PyObject *keys = PyList_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t i = 0; keys != NULL && i < PyList_GET_SIZE(rows); i++) {
        PyObject *row = PyList_GET_ITEM(rows, i);
        PyObject *key = NULL;
        if (PyTuple_Check(row) && place >= 0 && place < PyTuple_GET_SIZE(row))
            key = PyTuple_GET_ITEM(row, place);
        if (key == NULL || !(PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ||
                             PyBool_Check(key) || PyBytes_CheckExact(key) || key == Py_None)) {
            Py_DECREF(keys);
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(keys, i, Py_NewRef(key));
    }
    return keys;
}

static PyObject *
take(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("take", count, 2) < 0 || check_list(arguments[0]) < 0)
        return NULL;
    PyObject *rows = arguments[0];
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const int64_t *positions = view.buf;
    Py_ssize_t length = view.len / (Py_ssize_t)sizeof(int64_t);
    PyObject *taken = PyList_New(length);
    for (Py_ssize_t i = 0; taken != NULL && i < length; i++) {
        if (positions[i] < 0 || positions[i] >= PyList_GET_SIZE(rows)) {
            PyErr_SetString(PyExc_IndexError, "a position is outside of the list");
            Py_CLEAR(taken);
        } else
            PyList_SET_ITEM(taken, i, Py_NewRef(PyList_GET_ITEM(rows, positions[i])));
    }
    PyBuffer_Release(&view);
    return taken;
}

/* ---- encoding: MessagePack ---------------------------------------------------------------------- */

typedef struct {
    unsigned char *begin, *next, *end;
} Output;

static int
make_room(Output *output, Py_ssize_t bytes)
{
    if (output->end - output->next >= bytes)
        return 0;
    Py_ssize_t used = output->next - output->begin, size = output->end - output->begin;
    size += size / 2 > bytes ? size / 2 : bytes;
    unsigned char *larger = PyMem_Realloc(output->begin, size);
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    output->begin = larger;
    output->next = larger + used;
    output->end = larger + size;
    return 0;
}

static inline void
put_number(Output *output, unsigned char code, uint64_t number, int bytes)
{
    *output->next++ = code;
    while (bytes-- > 0)
        *output->next++ = (unsigned char)(number >> 8 * bytes);
}

static void
put_integer(Output *output, long long number)
{
    if (number >= -32 && number < 128)
        *output->next++ = (unsigned char)number;
    else if (number >= 0) {
        if (number <= 0xff)
            put_number(output, 0xcc, number, 1);
        else if (number <= 0xffff)
            put_number(output, 0xcd, number, 2);
        else if (number <= 0xffffffffLL)
            put_number(output, 0xce, number, 4);
        else
            put_number(output, 0xcf, number, 8);
    } else if (number >= INT8_MIN)
        put_number(output, 0xd0, number, 1);
    else if (number >= INT16_MIN)
        put_number(output, 0xd1, number, 2);
    else if (number >= INT32_MIN)
        put_number(output, 0xd2, number, 4);
    else
        put_number(output, 0xd3, number, 8);
}

/* A text or bytes. The codes: of a length of one byte, two, and four. */
static int
put_bytes(Output *output, const void *bytes, Py_ssize_t length, unsigned char code)
{
    if (make_room(output, length + 5) < 0)
        return -1;
    if (code == 0xd9 && length < 32)
        *output->next++ = 0xa0 | (unsigned char)length;
    else if (length <= 0xff)
        put_number(output, code, length, 1);
    else if (length <= 0xffff)
        put_number(output, code + 1, length, 2);
    else
        put_number(output, code + 2, length, 4);
    memcpy(output->next, bytes, length);
    output->next += length;
    return 0;
}

static void
put_length(Output *output, uint64_t length)
{
    if (length < 16)
        *output->next++ = 0x90 | (unsigned char)length;
    else if (length <= 0xffff)
        put_number(output, 0xdc, length, 2);
    else
        put_number(output, 0xdd, length, 4);
}

#define LISTS_MAX 4 /* in each other */

/* 1: done; 0: a value that is encoded in Python; -1: an exception is set. `lists`: how many may
 * still be in each other. */
static int
put_value(Output *output, PyObject *value, int lists)
{
    PyTypeObject *kind = Py_TYPE(value);
    if (kind == &PyUnicode_Type) {
        const char *text;
        Py_ssize_t length;
        if (PyUnicode_IS_COMPACT_ASCII(value)) {
            text = PyUnicode_DATA(value);
            length = PyUnicode_GET_LENGTH(value);
        } else if ((text = PyUnicode_AsUTF8AndSize(value, &length)) == NULL) {
            PyErr_Clear(); /* surrogates */
            return 0;
        }
        if (length > 0xffffffffLL)
            return 0;
        return put_bytes(output, text, length, 0xd9) < 0 ? -1 : 1;
    }
    if (kind == &PyBytes_Type) {
        if (PyBytes_GET_SIZE(value) > 0xffffffffLL)
            return 0;
        return put_bytes(output, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), 0xc4) < 0 ? -1 : 1;
    }
    if (make_room(output, 9) < 0)
        return -1;
    if (kind == &PyList_Type) {
        Py_ssize_t length = PyList_GET_SIZE(value);
        if (lists == 0 || length > 0xffffffffLL)
            return 0;
        put_length(output, length);
        int done = 1;
        for (Py_ssize_t i = 0; done == 1 && i < length; i++)
            done = put_value(output, PyList_GET_ITEM(value, i), lists - 1);
        return done;
    }
    if (kind == &PyLong_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0) {
            put_integer(output, number);
            return 1;
        }
        if (overflow < 0)
            return 0;
        unsigned long long large = PyLong_AsUnsignedLongLong(value);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        put_number(output, 0xcf, large, 8);
        return 1;
    }
    if (kind == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(value);
        uint64_t bits;
        memcpy(&bits, &number, 8);
        put_number(output, 0xcb, bits, 8);
        return 1;
    }
    if (value == Py_None)
        *output->next++ = 0xc0;
    else if (value == Py_False)
        *output->next++ = 0xc2;
    else if (value == Py_True)
        *output->next++ = 0xc3;
    else
        return 0;
    return 1;
}

static PyObject *
encode(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("encode", count, 2) < 0 || check_list(arguments[0]) < 0)
        return NULL;
    PyObject *rows = arguments[0];
    Py_ssize_t width = PyLong_AsSsize_t(arguments[1]), length = PyList_GET_SIZE(rows);
    if (width == -1 && PyErr_Occurred())
        return NULL;
    if (width < 1 || length > 0xffffffffLL / width)
        Py_RETURN_NONE;
    uint64_t values = (uint64_t)length * width;
    Py_ssize_t size = 64 + 12 * (Py_ssize_t)values;
    Output output = {.begin = PyMem_Malloc(size)};
    if (output.begin == NULL)
        return PyErr_NoMemory();
    output.next = output.begin;
    output.end = output.begin + size;
    put_length(&output, values);
    int done = 1;
    for (Py_ssize_t i = 0; done == 1 && i < length; i++) {
        PyObject *row = PyList_GET_ITEM(rows, i);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != width)
            done = 0;
        for (Py_ssize_t k = 0; done == 1 && k < width; k++)
            done = put_value(&output, PyTuple_GET_ITEM(row, k), LISTS_MAX);
    }
    PyObject *data = NULL;
    if (done == 1)
        data = PyBytes_FromStringAndSize((char *)output.begin, output.next - output.begin);
    else if (done == 0)
        data = Py_NewRef(Py_None);
    PyMem_Free(output.begin);
    return data;
}

/* ---- decoding ------------------------------------------------------------------------------------ */

typedef struct {
    const unsigned char *next, *end;
} Input;

/* Reads a number of so many bytes. -1: the input ends before. */
static inline int
get_number(Input *input, int bytes, uint64_t *number)
{
    if (input->end - input->next < bytes)
        return -1;
    *number = 0;
    while (bytes-- > 0)
        *number = *number << 8 | *input->next++;
    return 0;
}

static PyObject *
get_text(Input *input, uint64_t length)
{
    if ((uint64_t)(input->end - input->next) < length)
        return NULL;
    const unsigned char *text = input->next;
    input->next += length;
    unsigned char bits = 0;
    for (uint64_t i = 0; i < length; i++)
        bits |= text[i];
    if (bits >= 128)
        return PyUnicode_DecodeUTF8((const char *)text, length, "surrogatepass");
    PyObject *ascii = PyUnicode_New(length, 127);
    if (ascii != NULL)
        memcpy(PyUnicode_DATA(ascii), text, length);
    return ascii;
}

static PyObject *
get_bytes(Input *input, uint64_t length)
{
    if ((uint64_t)(input->end - input->next) < length)
        return NULL;
    input->next += length;
    return PyBytes_FromStringAndSize((const char *)input->next - length, length);
}

static PyObject *get_list(Input *input, uint64_t length, int lists);

/* NULL, with or without an exception: a value that is decoded in Python, or is damaged. `lists`:
 * how many may still be in each other. */
static PyObject *
get_value(Input *input, int lists)
{
    uint64_t number, code;
    if (get_number(input, 1, &code) < 0)
        return NULL;
    if (code < 0x80)
        return PyLong_FromLong((long)code);
    if (code >= 0xe0)
        return PyLong_FromLong((long)code - 256);
    if (code >= 0xa0 && code < 0xc0)
        return get_text(input, code & 31);
    if ((code & 0xf0) == 0x90)
        return get_list(input, code & 15, lists);
    switch (code) {
    case 0xc0:
        return Py_NewRef(Py_None);
    case 0xc2:
        return Py_NewRef(Py_False);
    case 0xc3:
        return Py_NewRef(Py_True);
    case 0xc4: case 0xc5: case 0xc6:
        return get_number(input, 1 << (code - 0xc4), &number) < 0 ? NULL : get_bytes(input, number);
    case 0xcb: {
        if (get_number(input, 8, &number) < 0)
            return NULL;
        double value;
        memcpy(&value, &number, 8);
        return PyFloat_FromDouble(value);
    }
    case 0xcc: case 0xcd: case 0xce: case 0xcf:
        if (get_number(input, 1 << (code - 0xcc), &number) < 0)
            return NULL;
        return PyLong_FromUnsignedLongLong(number);
    case 0xd0:
        return get_number(input, 1, &number) < 0 ? NULL : PyLong_FromLong((int8_t)number);
    case 0xd1:
        return get_number(input, 2, &number) < 0 ? NULL : PyLong_FromLong((int16_t)number);
    case 0xd2:
        return get_number(input, 4, &number) < 0 ? NULL : PyLong_FromLong((int32_t)number);
    case 0xd3:
        return get_number(input, 8, &number) < 0 ? NULL : PyLong_FromLongLong((int64_t)number);
    case 0xd9: case 0xda: case 0xdb:
        return get_number(input, 1 << (code - 0xd9), &number) < 0 ? NULL : get_text(input, number);
    case 0xdc: case 0xdd:
        return get_number(input, 2 << (code - 0xdc), &number) < 0 ? NULL : get_list(input, number, lists);
    }
    return NULL;
}

static PyObject *
get_list(Input *input, uint64_t length, int lists)
{
    /* Each value has at least a byte: no more is allocated for a damaged length. */
    if (lists == 0 || (uint64_t)(input->end - input->next) < length)
        return NULL;
    PyObject *list = PyList_New((Py_ssize_t)length);
    for (Py_ssize_t i = 0; list != NULL && i < (Py_ssize_t)length; i++) {
        PyObject *value = get_value(input, lists - 1);
        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, value);
    }
    return list;
}

/* The length of the array that the input begins with. -1: it begins with something else. */
static int
get_length(Input *input, uint64_t *length)
{
    uint64_t code;
    if (get_number(input, 1, &code) < 0)
        return -1;
    if ((code & 0xf0) == 0x90) {
        *length = code & 15;
        return 0;
    }
    if (code != 0xdc && code != 0xdd)
        return -1;
    return get_number(input, code == 0xdc ? 2 : 4, length);
}

static PyObject *
decode(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("decode", count, 3) < 0 || check_type(arguments[2]) < 0)
        return NULL;
    PyTypeObject *kind = (PyTypeObject *)arguments[2];
    Py_ssize_t width = PyLong_AsSsize_t(arguments[1]);
    if (width == -1 && PyErr_Occurred())
        return NULL;
    if (!PyType_IsSubtype(kind, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "decode builds tuples");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Input input = {view.buf, (const unsigned char *)view.buf + view.len};
    PyObject *rows = NULL;
    uint64_t values;
    /* Each value has at least a byte: no more is allocated for a damaged length. */
    if (get_length(&input, &values) == 0 && width > 0 && values % width == 0 &&
        values <= (uint64_t)view.len)
        rows = PyList_New((Py_ssize_t)(values / width));
    for (Py_ssize_t i = 0; rows != NULL && i < PyList_GET_SIZE(rows); i++) {
        PyObject *row = kind == &PyTuple_Type ? PyTuple_New(width) : kind->tp_alloc(kind, width);
        for (Py_ssize_t k = 0; row != NULL && k < width; k++) {
            PyObject *value = get_value(&input, LISTS_MAX);
            if (value == NULL)
                Py_CLEAR(row);
            else
                PyTuple_SET_ITEM(row, k, value);
        }
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, i, row);
    }
    if (rows != NULL && input.next != input.end)
        Py_CLEAR(rows);
    PyBuffer_Release(&view);
    if (rows == NULL) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return rows;
}

/* ---- constructors of NamedTuples ------------------------------------------------------------------ */

/* The classes whose instances `new_record` makes, by their address; a new class takes the place of
   an older one. The instances of a class are made by Python if it has lost its place, or if its
   attributes have changed since, as its version then says. Classes are not kept alive: one that
   is new at the address of a former one does not have `new_record`. */
#define CLASSES 1024
static struct {
    PyTypeObject *kind;
    Py_ssize_t width;
    unsigned int version;
} classes[CLASSES];

static inline size_t
slot_of(PyTypeObject *kind)
{
    return ((size_t)kind >> 5) * 0x9E3779B97F4A7C15ull >> 54;
}

/* The call as Python makes it for a type without a vectorcall. */
static PyObject *
call_type(PyObject *type, PyObject *const *arguments, Py_ssize_t given, PyObject *keywords)
{
    PyObject *record = NULL, *named = NULL, *positional = PyTuple_New(given);
    if (positional == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < given; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(arguments[i]));
    if (keywords != NULL && (named = PyDict_New()) == NULL)
        goto end;
    for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(keywords); i++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(keywords, i), arguments[given + i]) < 0)
            goto end;
    record = PyType_Type.tp_call(type, positional, named);
end:
    Py_DECREF(positional);
    Py_XDECREF(named);
    return record;
}

static PyObject *
new_record(PyObject *type, PyObject *const *arguments, size_t flags, PyObject *keywords)
{
    PyTypeObject *kind = (PyTypeObject *)type;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    size_t slot = slot_of(kind);
    if (keywords == NULL && classes[slot].kind == kind && classes[slot].width == given &&
        classes[slot].version == kind->tp_version_tag) {
        PyObject *record = kind->tp_alloc(kind, given);
        for (Py_ssize_t i = 0; record != NULL && i < given; i++)
            PyTuple_SET_ITEM(record, i, Py_NewRef(arguments[i]));
        return record;
    }
    return call_type(type, arguments, given, keywords);
}

static PyObject *
quicken(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (check_arguments("quicken", count, 2) < 0 || check_type(arguments[0]) < 0)
        return NULL;
    PyTypeObject *kind = (PyTypeObject *)arguments[0];
    Py_ssize_t width = PyLong_AsSsize_t(arguments[1]);
    if (width == -1 && PyErr_Occurred())
        return NULL;
    PyObject *constructor = PyObject_GetAttrString(arguments[0], "__new__");
    if (constructor == NULL)
        return NULL;
    Py_DECREF(constructor); /* it was looked up so that the class has a version */
    size_t slot = slot_of(kind);
    int can = PyType_HasFeature(kind, Py_TPFLAGS_HEAPTYPE) && Py_TYPE(kind) == &PyType_Type &&
              PyType_IsSubtype(kind, &PyTuple_Type) && kind->tp_init == PyBaseObject_Type.tp_init &&
              kind->tp_version_tag != 0 && kind->tp_vectorcall == NULL;
    if (can) {
        classes[slot].kind = kind;
        classes[slot].width = width;
        classes[slot].version = kind->tp_version_tag;
        kind->tp_vectorcall = new_record;
    }
    return PyBool_FromLong(can);
}

/* ---- module ---------------------------------------------------------------------------------------- */

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(expand), FUNCTION(each), FUNCTION(choose),
    FUNCTION(plain_keys), FUNCTION(take), FUNCTION(encode),
    FUNCTION(decode), FUNCTION(quicken), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "sunshower._record_loops", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__record_loops(void)
{
    fill_crc_table();
    return PyModule_Create(&definition);
}
