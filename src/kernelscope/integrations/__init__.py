"""Where people work: trainers, servers, trackers, notebooks and agents. Each needs its own package."""
