-- Schema 4. It never changes: each later change of a table needs a revision that upgrades it.
CREATE TABLE artifacts (
    digest TEXT NOT NULL,
    kind TEXT NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (digest)
);
CREATE TABLE experiments (
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    request_id TEXT NOT NULL,
    request_key TEXT NOT NULL,
    spec_json TEXT NOT NULL,
    spec_digest TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT NOT NULL,
    remedy TEXT NOT NULL,
    waits_for TEXT NOT NULL,
    create_time FLOAT NOT NULL,
    end_time FLOAT,
    model_digest TEXT NOT NULL,
    scorer TEXT NOT NULL,
    max_tokens INTEGER NOT NULL,
    needs_profile BOOLEAN NOT NULL,
    profile_digest TEXT,
    scale_map_digest TEXT,
    selection_digest TEXT NOT NULL,
    heldout_digest TEXT NOT NULL,
    selection_rows INTEGER NOT NULL,
    heldout_rows INTEGER NOT NULL,
    selection_revision TEXT,
    heldout_revision TEXT,
    examples_done INTEGER NOT NULL,
    examples_total INTEGER NOT NULL,
    last_cursor BIGINT NOT NULL,
    jobs_total INTEGER NOT NULL,
    jobs_done INTEGER NOT NULL,
    jobs_failed INTEGER NOT NULL,
    development_digest TEXT NOT NULL,
    development_rows INTEGER NOT NULL,
    generator_digest TEXT NOT NULL,
    prompts_digest TEXT NOT NULL,
    updates_done INTEGER NOT NULL,
    candidates_stopped INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    training_digest TEXT NOT NULL,
    training_rows INTEGER NOT NULL,
    temperature FLOAT NOT NULL,
    sampling_seed BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uq_experiments_request_id UNIQUE (request_key)
);
CREATE INDEX ix_experiments_created ON experiments (create_time, id);
CREATE INDEX ix_experiments_parent ON experiments (parent_id);
CREATE INDEX ix_experiments_state ON experiments (state);
CREATE INDEX ix_experiments_tenant ON experiments (tenant, create_time, id);
CREATE TABLE candidates (
    experiment_id TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    noise TEXT NOT NULL,
    seed BIGINT NOT NULL,
    method TEXT NOT NULL,
    radius FLOAT NOT NULL,
    scale_map_digest TEXT NOT NULL,
    coefficients BYTEA,
    lineage TEXT NOT NULL,
    normaliser FLOAT,
    PRIMARY KEY (experiment_id, "index"),
    FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
CREATE TABLE ensembles (
    experiment_id TEXT NOT NULL,
    population INTEGER NOT NULL,
    ensemble_size INTEGER NOT NULL,
    experts TEXT NOT NULL,
    metric FLOAT NOT NULL,
    correct INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    PRIMARY KEY (experiment_id, population, ensemble_size),
    FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
CREATE TABLE events (
    experiment_id TEXT NOT NULL,
    cursor BIGINT NOT NULL,
    time FLOAT NOT NULL,
    message TEXT NOT NULL,
    waits_for TEXT NOT NULL,
    state TEXT NOT NULL,
    progress BYTEA NOT NULL,
    PRIMARY KEY (experiment_id, cursor),
    FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
CREATE TABLE predictions (
    id TEXT NOT NULL,
    experts TEXT NOT NULL,
    ask_all BOOLEAN NOT NULL,
    questions_digest TEXT NOT NULL,
    questions BYTEA NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(id) REFERENCES experiments (id)
);
CREATE INDEX ix_predictions_questions ON predictions (questions_digest);
CREATE TABLE rounds (
    experiment_id TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    phase TEXT NOT NULL,
    searched_model TEXT NOT NULL,
    searched_digest TEXT NOT NULL,
    start_model TEXT NOT NULL,
    start_digest TEXT NOT NULL,
    search_id TEXT NOT NULL,
    harvest_id TEXT NOT NULL,
    evaluation_id TEXT NOT NULL,
    dataset_digest TEXT NOT NULL,
    harvest BYTEA NOT NULL,
    student_digest TEXT NOT NULL,
    training BYTEA NOT NULL,
    PRIMARY KEY (experiment_id, "index"),
    FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
CREATE TABLE updates (
    experiment_id TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    step TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (experiment_id, "index"),
    FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
CREATE TABLE jobs (
    id TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    candidate INTEGER NOT NULL,
    split TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    token BIGINT NOT NULL,
    worker TEXT NOT NULL,
    lease_deadline FLOAT,
    answers_done INTEGER NOT NULL,
    parked BOOLEAN NOT NULL,
    correct INTEGER NOT NULL,
    error TEXT NOT NULL,
    remedy TEXT NOT NULL,
    metric FLOAT,
    reward_lower FLOAT,
    reward_upper FLOAT,
    skipped BYTEA,
    tokens BIGINT NOT NULL,
    switch_seconds FLOAT NOT NULL,
    generate_seconds FLOAT NOT NULL,
    score_seconds FLOAT NOT NULL,
    environment TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(experiment_id, candidate) REFERENCES candidates (experiment_id, "index"),
    CONSTRAINT uq_jobs_candidate_split UNIQUE (experiment_id, split, candidate)
);
CREATE INDEX ix_jobs_lease ON jobs (state, lease_deadline);
CREATE INDEX ix_jobs_ranking ON jobs (experiment_id, split, state, metric, candidate);
CREATE TABLE votes (
    experiment_id TEXT NOT NULL,
    population INTEGER NOT NULL,
    ensemble_size INTEGER NOT NULL,
    row INTEGER NOT NULL,
    answer TEXT,
    correct BOOLEAN NOT NULL,
    valid INTEGER NOT NULL,
    support INTEGER NOT NULL,
    correct_support INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    PRIMARY KEY (experiment_id, population, ensemble_size, row),
    FOREIGN KEY(experiment_id, population, ensemble_size) REFERENCES ensembles (experiment_id, population, ensemble_size)
);
CREATE TABLE answers (
    job_id TEXT NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (job_id),
    FOREIGN KEY(job_id) REFERENCES jobs (id)
);
