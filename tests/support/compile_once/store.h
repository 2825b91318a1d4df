// Results that are kept.

#pragma once

#include "request.h"

#include <cstdio>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

const string FOLDER = "\1folder\1";  // of the first input, in what the compiler said

// With its mode; a precompiled header with its time, which is part of later keys.
inline bool copy_file(const string& from, const string& to) {
    struct stat found;
    std::error_code failed;
    if (stat(from.c_str(), &found)) return false;
    fs::remove(to, failed);
    if (!fs::copy_file(from, to, failed) || failed) return false;
    const struct timespec times[2] = {found.st_mtim, found.st_mtim};
    if (fs::path(from).extension() == ".gch" || fs::path(to).extension() == ".gch")
        if (utimensat(AT_FDCWD, to.c_str(), times, 0)) return false;
    return !chmod(to.c_str(), found.st_mode & 0777);
}

// What was built, with which headers, and what the compiler said of it: three files, named by the key.
class Entry {
  public:
    Entry(const fs::path& store, const Key& key) : path_((store / key.text()).string()) {}

    bool give(const string& target, const string& folder) const {
        std::ifstream list(path_ + ".headers");
        string state, header;
        if (!list) return false;
        while (std::getline(list, state) && std::getline(list, header))
            if (state_of(header) != state) return false;
        if (!copy_file(path_, target)) return false;
        const string said = replaced(text_of(path_ + ".said").value_or(""), FOLDER, folder);
        fwrite(said.data(), 1, said.size(), stderr);
        return true;
    }

    bool keep(const string& target, const Words& headers, const string& said) const {
        const string unfinished = path_ + "." + std::to_string(getpid());
        {
            std::ofstream list(unfinished);
            for (const string& header : headers) list << state_of(header) << "\n" << header << "\n";
            if (!list.flush()) return false;
        }
        if (!said.empty() && !(std::ofstream(path_ + ".said") << said)) return false;
        if (!copy_file(target, unfinished + "-copy") || rename((unfinished + "-copy").c_str(), path_.c_str())) return false;
        return !rename(unfinished.c_str(), (path_ + ".headers").c_str());
    }

  private:
    string path_;
};

// One line for each call, with the CPU time that the compiler took.
inline void note(const fs::path& store, const char* what, const Request& request) {
    const int log = open((store / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    const auto in_ms = [](const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; };
    const long cpu = in_ms(used.ru_utime) + in_ms(used.ru_stime);
    const string line = string(what) + " " + std::to_string(cpu) + " ms " + request.target + "\n";
    if (log >= 0 && write(log, line.data(), line.size()) < 0) return;
}
