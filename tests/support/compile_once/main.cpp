// A C++ compiler that builds nothing twice: it runs the real one and keeps the result.
//
// A result is given back only if all that the compiler read is the same: its arguments and variables, the text of
// its inputs, and size and time of each header that it opened. Folders of inputs may differ, unless the result names
// them; debug information may then name the folder of the first build. Whenever something is unusual, the compiler
// runs as if this program were not there. Beside the program are the folders "real", with a link to the compiler of
// each name that the program has, and "store", with the results, and the file "linker", with an option that selects
// a faster linker, where there is one: install.sh makes them.

#include "store.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace {

std::vector<char*> pointers(const Words& words) {
    std::vector<char*> found;
    for (const string& word : words) found.push_back(const_cast<char*>(word.c_str()));
    found.push_back(nullptr);
    return found;
}

[[noreturn]] void run_unseen(const Words& words) {
    execv(words[0].c_str(), pointers(words).data());
    fprintf(stderr, "%s: %s\n", words[0].c_str(), strerror(errno));
    _exit(127);
}

// The words of a call that writes its result elsewhere.
Words writing_to(Words words, const string& target) {
    for (size_t i = 1; i + 1 < words.size(); ++i)
        if (words[i] == "-o") words[i + 1] = target;
    return words;
}

// The exit status of the compiler, with a list of the headers and what it said in two files; -1 for a signal.
int run(Words words, const string& rules, const string& said) {
    words.insert(words.end(), {"-MD", "-MF", rules, "-MT", "target"});
    const pid_t parent = getpid(), child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);
        const int out = open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        if (out < 0) _exit(127);
        dup2(out, 1), dup2(out, 2), close(out);
        run_unseen(words);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

int main(int argc, char** argv) {
    Words words(argv, argv + argc);
    const fs::path home = fs::read_symlink("/proc/self/exe").parent_path(), store = home / "store";
    words[0] = fs::read_symlink(home / "real" / name_of(words[0])).string();
    const auto linker = text_of(home / "linker");
    const bool links_faster = linker && links_as_usual(words);
    if (links_faster) words.insert(words.begin() + 1, linker->substr(0, linker->find('\n')));
    const Request request(words);
    const auto key = request.usual ? request.key() : std::nullopt;
    if (!key) run_unseen(words);

    // Of a result that belongs to its folders, they are part of the key.
    Key bound_key = *key;
    for (const string& folder : request.folders()) bound_key.add(folder);
    const Entry anywhere(store, *key), here(store, bound_key);
    const string folder = folder_of(request.inputs[0]);
    const auto give = [&] { return anywhere.give(request.target, folder) || here.give(request.target, folder); };
    if (give()) return note(store, "kept", request), 0;

    // Two processes that need the same build it once.
    const string stem = (store / key->text()).string(), mine = stem + "." + std::to_string(getpid());
    const int lock = open((stem + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX)) run_unseen(words);
    if (give()) return note(store, "kept", request), 0;

    std::error_code ignored;
    fs::remove(request.target, ignored);
    const time_t begun = time(nullptr);
    // gold writes the path of its output into the library, which would then belong to its folder.
    const string made_at = links_faster ? stem + ".linked" : request.target;
    const int status = run(writing_to(words, made_at), mine + ".rule", mine + ".said");
    const bool moved = !links_faster || status || copy_file(made_at, request.target);
    if (links_faster) fs::remove(made_at, ignored);
    auto said = text_of(mine + ".said");
    if (said) said = replaced(*said, made_at, request.target);
    auto headers = headers_in(mine + ".rule");
    fs::remove(mine + ".said", ignored), fs::remove(mine + ".rule", ignored);
    if (said) fwrite(said->data(), 1, said->size(), stderr);
    if (status) return note(store, "failed", request), status < 0 ? 1 : status;
    if (!moved) return fprintf(stderr, "%s cannot be written\n", request.target.c_str()), 1;

    bool objects_only = true;
    for (const string& path : request.inputs) objects_only = objects_only && is_object(path);
    if (!headers && objects_only) headers = Words();
    const auto made = text_of(request.target);
    const auto key_now = request.key();
    const bool changed = !key_now || key_now->text() != key->text();
    if (!headers || !said || !made || changed) return note(store, "not kept", request), 0;

    const std::set<string> folders = request.folders();
    const string loaded = loaded_part(*made);
    Words passing;  // folders of this call alone
    for (const string& path : {fs::current_path().string(), folder_of(request.target)})
        if (!folders.count(path)) passing.push_back(path);
    if (contains_any(loaded, passing)) return note(store, "not kept", request), 0;
    std::set<string> known(request.inputs.begin(), request.inputs.end());
    known.insert(request.headers.begin(), request.headers.end());
    for (const string& path : request.headers) known.insert(path + ".gch");
    bool bound = contains_any(loaded, Words(folders.begin(), folders.end()));
    Words others;
    for (const string& header : *headers) {
        if (known.count(header)) continue;
        // One that is as new as this build may have changed under it.
        if (header[0] != '/' || changed_at(header) >= begun) return note(store, "not kept", request), 0;
        bound = bound || folders.count(folder_of(header));
        others.push_back(header);
    }
    const bool kept = (bound ? here : anywhere).keep(request.target, others, replaced(*said, folder, FOLDER));
    note(store, !kept ? "not kept" : bound ? "built here" : "built", request);
    return 0;
}
