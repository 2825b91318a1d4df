// Files and their texts.

#pragma once

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace fs = std::filesystem;
using std::string;
using Words = std::vector<string>;

inline bool starts_with(const string& text, const string& start) { return text.compare(0, start.size(), start) == 0; }

inline bool contains_any(const string& text, const Words& parts) {
    for (const string& part : parts)
        if (!part.empty() && text.find(part) != string::npos) return true;
    return false;
}

inline string replaced(string text, const string& from, const string& to) {
    for (size_t at = text.find(from); at != string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

inline string folder_of(const string& path) { return fs::absolute(path).lexically_normal().parent_path().string(); }
inline string name_of(const string& path) { return fs::path(path).filename().string(); }

inline std::optional<string> text_of(const string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    return string(std::istreambuf_iterator<char>(file), {});
}

// Whether a file is the same as before, without reading it.
inline string state_of(const string& path) {
    struct stat found;
    if (stat(path.c_str(), &found)) return "missing";
    return std::to_string(found.st_size) + " " + std::to_string(found.st_mtim.tv_sec) + "." +
           std::to_string(found.st_mtim.tv_nsec);
}

inline time_t changed_at(const string& path) {
    struct stat found;
    return stat(path.c_str(), &found) ? 0 : found.st_mtim.tv_sec;
}

// The text of a file; of an object or a library, only what is loaded.
inline string loaded_part(const string& text) {
    Elf64_Ehdr header;
    if (text.size() < sizeof header || memcmp(text.data(), ELFMAG, SELFMAG)) return text;
    memcpy(&header, text.data(), sizeof header);
    string found;
    for (int i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        const size_t at = header.e_shoff + i * sizeof section;
        if (at + sizeof section > text.size()) return text;
        memcpy(&section, text.data() + at, sizeof section);
        if (section.sh_flags & SHF_ALLOC && section.sh_type != SHT_NOBITS)
            found += text.substr(section.sh_offset, section.sh_size) + '\n';
    }
    return found;
}

// The prerequisites of a rule for make, without the target.
inline std::optional<Words> headers_in(const string& rule_path) {
    const auto rule = text_of(rule_path);
    if (!rule) return std::nullopt;
    Words found;
    string word;
    bool targets = true;
    for (size_t i = 0; i <= rule->size(); ++i) {
        const char letter = i < rule->size() ? (*rule)[i] : '\n';
        const char next = i + 1 < rule->size() ? (*rule)[i + 1] : '\n';
        if (letter == '\\' && next == '\n') {
            ++i;
        } else if (letter == '\\' || (letter == '$' && next == '$')) {
            word += next;
            ++i;
            continue;
        } else if (letter != ' ' && letter != '\n') {
            word += letter;
            continue;
        }
        if (!word.empty() && !targets) found.push_back(word);
        if (!word.empty() && word.back() == ':') targets = false;
        word.clear();
    }
    return found;
}
