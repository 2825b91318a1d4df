// One call of the compiler: what it reads and writes, and a key of all that it reads but headers.

#pragma once

#include "files.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

// What makes the compiler write other files, read other files, or say something; it then runs unseen.
const Words UNUSUAL = {
    "@", "-M", "-save-temps", "--save-temps", "-dump", "-fdump", "-fprofile", "--coverage", "-gsplit", "-fplugin",
    "-specs", "-wrapper", "-v", "-#", "-B", "-iquote", "-idirafter", "-isysroot", "--sysroot", "-imacros", "-Wp,", "-Wl,-T",
};
// In a source: its meaning depends on the hour, or on files that the compiler does not list.
const Words UNUSUAL_TEXT = {"__TIME__", "__DATE__", "__TIMESTAMP__", "incbin", "__has_include", "#embed"};
const Words VARIABLES = {
    "PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "GCC_COMPARE_DEBUG", "SOURCE_DATE_EPOCH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
};

// 128 bits, of two multiplications that differ.
struct Key {
    uint64_t one = 0xcbf29ce484222325, two = 0x9e3779b97f4a7c15;

    void add(const string& text) {
        for (unsigned char letter : std::to_string(text.size()) + ":" + text) {
            one = (one ^ letter) * 0x100000001b3;
            two = (two ^ letter) * 0xff51afd7ed558ccd;
            two ^= two >> 29;
        }
    }

    string text() const {
        char digits[33];
        snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)one, (unsigned long long)two);
        return digits;
    }
};

// What one call of the compiler reads and writes, as far as its arguments say it.
struct Request {
    Words words;                    // with the compiler itself
    Words inputs;                   // sources and objects
    Words headers;                  // of -include
    Words include_folders;
    Words library_folders;
    Words libraries;
    string target;
    bool usual = true;

    explicit Request(const Words& words) : words(words) {
        for (size_t i = 1; i < words.size(); ++i) {
            const string& word = words[i];
            const bool has_next = i + 1 < words.size();
            for (const string& unusual : UNUSUAL) usual = usual && !starts_with(word, unusual);
            if (word == "-") usual = false;
            else if (word == "-o" && has_next) target = words[++i];
            else if (word == "-include" && has_next) headers.push_back(words[++i]);
            else if ((word == "-D" || word == "-x" || word == "-U") && has_next) ++i;
            else if ((word == "-I" || word == "-isystem") && has_next) include_folders.push_back(words[++i]);
            else if (word == "-L" && has_next) library_folders.push_back(words[++i]);
            else if (starts_with(word, "-I")) include_folders.push_back(word.substr(2));
            else if (starts_with(word, "-L")) library_folders.push_back(word.substr(2));
            else if (starts_with(word, "-l")) libraries.push_back(word.substr(2));
            else if (!starts_with(word, "-")) inputs.push_back(word);
        }
        usual = usual && !target.empty() && target != "-" && !inputs.empty();
        struct stat found;
        if (!target.empty() && !stat(target.c_str(), &found)) usual = usual && S_ISREG(found.st_mode);
    }

    // Folders whose names do not matter, unless the result has them or headers lie there.
    std::set<string> folders() const {
        std::set<string> found;
        for (const string& path : inputs) found.insert(folder_of(path));
        for (const string& path : headers) found.insert(folder_of(path));
        return found;
    }

    // Everything but the headers, which only the compiler knows; nothing if the request is unusual.
    std::optional<Key> key() const {
        Key key;
        std::set<string> renamed(inputs.begin(), inputs.end());
        renamed.insert(headers.begin(), headers.end());
        key.add(state_of(words[0]));
        for (const string& word : words) key.add(word == target ? "-" : renamed.count(word) ? name_of(word) : word);
        for (const string& name : VARIABLES) {
            const char* value = getenv(name.c_str());
            key.add(value ? string("=") + value : "");
        }
        for (const string& path : renamed) {
            const auto text = text_of(path);
            if (!text) return std::nullopt;
            if (contains_any(*text, UNUSUAL_TEXT)) return std::nullopt;
            key.add(*text);
            add_quoted_headers(key, path, *text);
        }
        for (const string& path : headers) key.add(state_of(path + ".gch"));
        for (const string& folder : include_folders) {
            if (folder.empty() || folder[0] != '/') return std::nullopt;
            key.add(state_of(folder));  // a header that is new here could hide another one
        }
        for (const string& folder : library_folders)
            for (const string& name : libraries)
                for (const char* ending : {".so", ".a"}) key.add(state_of(folder + "/lib" + name + ending));
        return key;
    }

    // #include "x.h" reads x.h beside the source, if there is one.
    static void add_quoted_headers(Key& key, const string& path, const string& text) {
        for (size_t at = text.find("include \""); at != string::npos; at = text.find("include \"", at + 1)) {
            const size_t begin = at + strlen("include \""), end = text.find('"', begin);
            const auto header = text_of(folder_of(path) + "/" + text.substr(begin, end - begin));
            key.add(header ? "has " + *header : "has not");
        }
    }
};

// Whether it makes a shared library and chooses no linker itself.
inline bool links_as_usual(const Words& words) {
    bool shared = false;
    for (const string& word : words) {
        shared = shared || word == "-shared";
        for (const char* other : {"-c", "-E", "-S", "-x", "-r", "-fsyntax-only", "-fuse-ld", "-Wl,", "-fsanitize", "-flto", "-static"})
            if (word == other || (strlen(other) > 2 && starts_with(word, other))) return false;
    }
    return shared;
}

inline bool is_object(const string& path) {
    const string ending = fs::path(path).extension().string();
    return ending == ".o" || ending == ".so" || ending == ".a";
}
